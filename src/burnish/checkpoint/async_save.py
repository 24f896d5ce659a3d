"""Asynchronous checkpointing: a thread reads the weights and writes the checkpoint while the next step samples.

Weights change only when an update is applied. Until then the thread may read them in place, so `save` returns at once,
and `settle`, which is called before weights change, waits only until they are copied to host memory. The thread then
writes the copy to disk. One checkpoint is written at a time. A state that would take more than half of the host's free
memory is not copied: training waits until it is on disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from burnish.checkpoint import checkpoint
from burnish.checkpoint.pinned_buffers import HostBuffers
from burnish.core.parts import Stateful
from burnish.models import shards, write_by_ranks
from burnish.models.build import Models
from burnish.util.files import could_not_save, free_bytes, sweep

SPARE = 32 << 20  # bytes needed in addition to the tensors: tokenizers, manifests, logs


class Saver:
    """Writes the checkpoints of one run. Errors of the thread are raised by the next call of any method."""

    def __init__(
        self,
        folder: Path,
        memories: Mapping[str, Stateful],
        models: Models,
        *,
        run: str = "",
        keep: int = 2,
        keep_every: int = 0,
        before_writing: Callable[[], None] = lambda: None,
    ) -> None:
        self.before_writing = before_writing
        self.folder, self.memories, self.models, self.run = folder, memories, models, run
        self.keep, self.keep_every = keep, keep_every
        self.staging = HostBuffers()
        self._read = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._done: list[Path] = []
        self._stall = 0.0
        if not models.ranks.rank:
            sweep(folder / "checkpoints")
        for model in models:
            model.chat.files  # noqa: B018 - cached now, because computing it is slow

    def __enter__(self) -> Saver:
        self.models.before_move = self.settle
        return self

    def __exit__(self, *_: object) -> None:
        """Finish the checkpoint being written, also after an error: its contents are complete."""
        self.models.before_move = lambda: None
        if self._thread is not None:
            self._thread.join()

    def shortage(self) -> str:
        """A warning if the disk has no space for one more checkpoint; otherwise an empty string."""
        contents = checkpoint.collect(0, self.memories, self.models)
        trained = sum(p.numel() * 4 for m in self.models.trained() for p in m.optimiser.named.values())
        need = contents.bytes() + SPARE + (0 if any(s.optimiser for s in contents.models) else 2 * trained)
        need = max(need, write_by_ranks.bytes_of(self.models) + SPARE)
        free = free_bytes(self.folder)
        return f"a checkpoint needs {_size(need)}, but the disk has {_size(free)} free" if free < need else ""

    def save(self, step: int, best: int | None = None) -> None:
        """Start writing the state of the run before step `step`. Waits for the previous checkpoint.

        best: the step whose checkpoint is not removed
        """
        if self.models.ranks.rank:
            return  # every rank has the same weights, and rank 0 writes them
        self.wait()
        began = time.perf_counter()
        shards.ask(self.models)
        contents = checkpoint.collect(step, self.memories, self.models, self.run)
        shards.forget(self.models)
        free = free_bytes(self.folder)
        if free < contents.bytes() + SPARE:
            final = checkpoint.path_of(self.folder, step)
            why = f"it needs {_size(contents.bytes() + SPARE)}, but the disk has {_size(free)} free"
            raise ValueError(could_not_save(final, why))
        if write_by_ranks.divided(self.models):
            self._write_with_others(contents, best)
            self._stall += time.perf_counter() - began
            return
        ready = None
        if any(t.device.type == "cuda" for t in contents.tensors()):
            ready = torch.cuda.Event()
            ready.record()
        self._read.clear()
        thread = threading.Thread(target=self._work, args=(contents, ready, best), name="burnish-saving", daemon=True)
        try:
            thread.start()
        except BaseException:  # the thread did not start, so `settle` must not wait for it
            self._read.set()
            raise
        self._thread = thread
        self._stall += time.perf_counter() - began

    def _write_with_others(self, contents: checkpoint.Contents, best: int | None) -> None:
        """Write at once what no rank could copy whole, together with the other ranks."""
        names = [model.name for model in self.models if model.role.liveness != "frozen"]
        self.before_writing()
        path = checkpoint.write(
            self.folder, contents, lambda aside: write_by_ranks.ask(self.models, aside, names, product=False)
        )
        checkpoint.retire(self.folder, path, self.keep, self.keep_every, best)
        self._done.append(path)

    def settle(self) -> None:
        """Wait until the weights have been read; called before they change."""
        if self._thread is not None and not self._read.is_set():
            began = time.perf_counter()
            self._read.wait()
            self._stall += time.perf_counter() - began

    def wait(self) -> None:
        """Wait until the checkpoint being written is on disk; raise the thread's error, if any."""
        began = time.perf_counter()
        if self._thread is not None:
            self._thread.join()
        self._stall += time.perf_counter() - began
        self.check()

    def check(self) -> None:
        """Raise the thread's error, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def finished(self) -> list[Path]:
        """The checkpoints completed since the last call."""
        self.check()
        completed, self._done = self._done, []
        return completed

    def stalled(self) -> float:
        """Seconds that training waited for saving since the last call."""
        seconds, self._stall = self._stall, 0.0
        return seconds

    def _work(self, contents: checkpoint.Contents, ready: torch.cuda.Event | None, best: int | None) -> None:
        try:
            if self.staging.fits(contents.bytes()):
                contents = contents.with_tensors(self.staging.copy(contents.tensors(), ready))
                self._read.set()
            elif ready is not None:  # files are written from the GPU, one after the other, and training waits for them
                ready.synchronize()
            self.before_writing()  # flushes the log: a checkpoint must not be newer than the logged steps
            path = checkpoint.write(self.folder, contents)
            checkpoint.retire(self.folder, path, self.keep, self.keep_every, best)
            self._done.append(path)
        except BaseException as error:  # noqa: BLE001 - `check` raises it in the training thread
            self._error = error
        finally:
            self._read.set()


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
