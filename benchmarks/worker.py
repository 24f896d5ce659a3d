"""The process of one side. It sets itself up, then does the same work once for every turn that it is given.

    python worker.py sides.burnish_side:generation work.json

The parent writes `go` on standard input for every turn; every turn is answered with one line of JSON: seconds, counts
of what was done, and the peak of memory. Whatever libraries print goes to standard error. So all sides live side by
side, take turns, and none of them sees another one's memory, packages or crash.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TextIO


class Turns:
    """Hands out turns: `while turns.begin(): work(); turns.end(samples=..., sampled_tokens=...)`."""

    def __init__(self, answers: TextIO) -> None:
        self._answers = answers
        self._ready = False
        self._start = self._used = 0.0

    def begin(self) -> bool:
        """Wait for the next turn and start the clock; False when there is none."""
        if not self._ready:
            self._ready = True
            self.say(ready=True, versions=_versions())
        if sys.stdin.readline().strip() != "go":
            return False
        _reset_peak()
        _synchronise()
        self._start, self._used = time.perf_counter(), time.process_time()
        return True

    def lap(self) -> float:
        """Seconds since the turn began."""
        _synchronise()
        return time.perf_counter() - self._start

    def end(self, seconds: float | None = None, **counts: Any) -> None:
        """Stop the clock (unless it was read before counting) and report; with the time of all cores in cpu_seconds."""
        used = round(time.process_time() - self._used, 6)
        self.say(seconds=self.lap() if seconds is None else seconds, cpu_seconds=used, peak_bytes=_peak(), **counts)

    def say(self, **what: Any) -> None:
        """One line of JSON to the parent."""
        print(json.dumps(what), file=self._answers, flush=True)


def _cuda() -> Any:
    """torch.cuda, where this process has used a GPU."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized() else None


def _synchronise() -> None:
    cuda = _cuda()
    if cuda:
        cuda.synchronize()


def _reset_peak() -> None:
    cuda = _cuda()
    if cuda:
        cuda.reset_peak_memory_stats()
        return
    with contextlib.suppress(OSError):  # where this is not allowed, the peak is that of the whole life of the process
        Path("/proc/self/clear_refs").write_text("5")  # Linux: start the high-water mark over


def _peak() -> int:
    """The most memory held since the turn began: taken from the GPU, captured graphs included, or resident in main
    memory.
    """
    cuda = _cuda()
    if cuda:
        return cuda.max_memory_reserved()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _versions() -> dict[str, str]:
    """The versions of the packages that matter, as far as this side has loaded them."""
    names = ("torch", "transformers", "trl", "vllm", "triton", "burnish")
    return {name: str(getattr(sys.modules[name], "__version__", "")) for name in names if name in sys.modules}


def main(target: str, work_file: str) -> int:
    """Run one side until its parent has no more turns for it."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    turns = Turns(answers)
    module, _, name = target.partition(":")
    try:
        side = getattr(importlib.import_module(module), name)
        side(json.loads(Path(work_file).read_text()), turns)
    except BaseException as error:  # noqa: BLE001 - whatever stops a side is its result
        traceback.print_exc()
        turns.say(error=f"{type(error).__name__}: {error}"[:2000])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
