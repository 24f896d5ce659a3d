"""Saving beside training: a checkpoint is read and written by a thread while the next step samples.

Weights change at one moment of a step, when an update is made. Until then the thread may read them where they are, so
`save` returns at once, and `settle`, which is called before anything moves, waits for the reading only. What was read
stands in host memory from then on, and is written at leisure. One checkpoint is written at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from burnish.cast.stage import Cast
from burnish.parts import Stateful
from burnish.run import checkpoint
from burnish.run.disk import could_not_save, free_bytes, sweep
from burnish.run.staging import Staging

SPARE = 32 << 20  # bytes beyond the tensors: tokenizers, manifests, logs


class Saver:
    """Writes the checkpoints of one run. The thread's errors are raised by the next call of any method."""

    def __init__(
        self,
        folder: Path,
        memories: Mapping[str, Stateful],
        cast: Cast,
        *,
        run: str = "",
        keep: int = 2,
        keep_every: int = 0,
        before_writing: Callable[[], None] = lambda: None,
    ) -> None:
        self.before_writing = before_writing
        self.folder, self.memories, self.cast, self.run = folder, memories, cast, run
        self.keep, self.keep_every = keep, keep_every
        self.staging = Staging()
        self._read = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._done: list[Path] = []
        self._stall = 0.0
        if not cast.ranks.rank:
            sweep(folder / "checkpoints")
        for member in cast:
            member.chat.files  # noqa: B018 - takes a moment, so now, when nobody waits

    def __enter__(self) -> Saver:
        self.cast.before_move = self.settle
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever happened, what is being written is finished: it was complete when it was asked for."""
        self.cast.before_move = lambda: None
        if self._thread is not None:
            self._thread.join()

    def room(self) -> str:
        """What to say of a disk that could not hold one more checkpoint as things stand; nothing if it could."""
        contents = checkpoint.collect(0, self.memories, self.cast)
        trained = sum(p.numel() * 4 for m in self.cast.trained() for p in m.optimiser.named.values())
        need = contents.bytes() + SPARE + (0 if any(s.optimiser for s in contents.members) else 2 * trained)
        free = free_bytes(self.folder)
        return f"a checkpoint needs {_size(need)}, but the disk has {_size(free)} free" if free < need else ""

    def save(self, step: int) -> None:
        """Take the state of the run before step `step`, and have it written. Waits for the checkpoint before it."""
        if self.cast.ranks.rank:
            return  # every rank holds the same weights, and the first one writes them
        self.wait()
        began = time.perf_counter()
        contents = checkpoint.collect(step, self.memories, self.cast, self.run)
        free = free_bytes(self.folder)
        if free < contents.bytes() + SPARE:
            final = self.folder / "checkpoints" / f"step-{step:06d}"
            why = f"it needs {_size(contents.bytes() + SPARE)}, but the disk has {_size(free)} free"
            raise ValueError(could_not_save(final, why))
        ready = None
        if any(t.device.type == "cuda" for t in contents.tensors()):
            ready = torch.cuda.Event()
            ready.record()
        self._read.clear()
        self._thread = threading.Thread(target=self._work, args=(contents, ready), name="burnish-saving", daemon=True)
        self._thread.start()
        self._stall += time.perf_counter() - began

    def settle(self) -> None:
        """The weights are about to move: wait until they have been read."""
        if self._thread is not None and not self._read.is_set():
            began = time.perf_counter()
            self._read.wait()
            self._stall += time.perf_counter() - began

    def wait(self) -> None:
        """Until what is being written is on the disk; what went wrong is raised here."""
        began = time.perf_counter()
        if self._thread is not None:
            self._thread.join()
        self._stall += time.perf_counter() - began
        self.check()

    def check(self) -> None:
        """Raise what went wrong in the thread, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def finished(self) -> list[Path]:
        """The checkpoints that became whole since this was last asked."""
        self.check()
        found, self._done = self._done, []
        return found

    def stalled(self) -> float:
        """Seconds for which training stood still for saving, since this was last asked."""
        found, self._stall = self._stall, 0.0
        return found

    def _work(self, contents: checkpoint.Contents, ready: torch.cuda.Event | None) -> None:
        try:
            if ready is not None or self.staging.fits(contents.bytes()):
                contents = contents.with_tensors(self.staging.copy(contents.tensors(), ready))
                self._read.set()
            self.before_writing()  # a checkpoint must not outlive the record of the steps before it
            path = checkpoint.write(self.folder, contents)
            checkpoint.retire(self.folder, path, self.keep, self.keep_every)
            self._done.append(path)
        except BaseException as error:  # noqa: BLE001 - it is raised again where the run can hear it
            self._error = error
        finally:
            self._read.set()


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
