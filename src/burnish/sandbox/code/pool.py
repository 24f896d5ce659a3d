"""Zygotes that calls take in turn, as many as there are processors."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from burnish.sandbox.code.box import Box, Child, Run
from burnish.sandbox.code.limits import Limits


class Boxes:
    """Boxes that threads borrow, so many at a time; each is started when it is needed. One that has ended makes room
    for another, also for a thread that waits.
    """

    def __init__(self, make: Callable[[], Box], most: int) -> None:
        self._make, self._most, self._started = make, most, 0
        self._free: list[Box] = []
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def lent(self) -> Iterator[Box]:
        """A box for the calling thread alone."""
        box = self._take()
        try:
            yield box
        finally:
            with self._changed:
                if box.ended:
                    self._started -= 1
                else:
                    self._free.append(box)
                self._changed.notify()

    def end(self) -> None:
        """End the boxes that no thread has borrowed, with everything that they started."""
        with self._changed:
            self._started -= len(self._free)
            while self._free:
                self._free.pop().end()

    def _take(self) -> Box:
        with self._changed:
            self._changed.wait_for(lambda: self._free or self._started < self._most)
            if self._free:
                return self._free.pop()
            self._started += 1
        try:
            return self._make()
        except BaseException:
            with self._changed:
                self._started -= 1
                self._changed.notify()
            raise


class Pool:
    """Boxes of one kind. Calls may come from any thread; each waits for a free box.

    programs: whether processes may start the system's programs (a shell)
    """

    def __init__(self, limits: Limits, *, programs: bool = False, most: int | None = None) -> None:
        self.limits = limits
        self.boxes = Boxes(lambda: Box(limits, programs=programs), most or os.cpu_count() or 1)

    def run(self, children: Sequence[Child]) -> Run:
        """What becomes of these processes, which run together."""
        with self.boxes.lent() as box:
            try:
                return box.run(children, self.limits)
            except BaseException:
                box.end()
                raise


@cache
def _pool(pid: int, limits: Limits, programs: bool) -> Pool:
    return Pool(limits, programs=programs)


def pool(limits: Limits, *, programs: bool = False) -> Pool:
    """The pool of this process for these limits: a child process has one of its own."""
    return _pool(os.getpid(), limits, programs)
