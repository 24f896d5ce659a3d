"""Zygotes that calls take in turn, as many as there are processors."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Sequence
from functools import cache

from burnish.sandbox.code.box import Box, Child, Run
from burnish.sandbox.code.limits import Limits


class Pool:
    """Boxes of one kind. Calls may come from any thread; each waits for a free box.

    programs: whether processes may start the system's programs (a shell)
    """

    def __init__(self, limits: Limits, *, programs: bool = False) -> None:
        self.limits, self.programs = limits, programs
        self._free: queue.SimpleQueue[Box] = queue.SimpleQueue()
        self._lock, self._left = threading.Lock(), os.cpu_count() or 1

    def run(self, children: Sequence[Child]) -> Run:
        """What becomes of these processes, which run together."""
        with self._lock:
            start = self._free.empty() and self._left > 0
            self._left -= start
        box: Box | None = None
        try:
            box = Box(self.limits, programs=self.programs) if start else self._free.get()
            return box.run(children, self.limits)
        except BaseException:
            if box is not None:
                box.end()
            raise
        finally:
            if box is None or box.ended:
                with self._lock:
                    self._left += 1
            else:
                self._free.put(box)


@cache
def _pool(pid: int, limits: Limits, programs: bool) -> Pool:
    return Pool(limits, programs=programs)


def pool(limits: Limits, *, programs: bool = False) -> Pool:
    """The pool of this process for these limits: a child process has one of its own."""
    return _pool(os.getpid(), limits, programs)
