"""Short calls in one thread, one after the other. Where they are not short, calls get threads of their own.

Most environments answer within microseconds. A thread for each of hundreds of calls that come together would take
longer than the calls: the threads wait for the interpreter's lock in turn.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from burnish.util.threads import Call, in_thread

LOOK = 0.05  # seconds between two looks at a lane in which calls wait
FEWEST = 10  # calls that a lane finishes between two looks; with fewer, those that wait get threads of their own
APART = 1.0, 64.0  # seconds in which every call then gets a thread: twice as long every time
LINGER = 0.05  # seconds in which the thread waits for more calls


class Lane:
    """serving: whether a thread takes the calls. epoch: of that thread; one that was left has an older one."""

    def __init__(self) -> None:
        self._lock = threading.Condition(threading.Lock())
        self._calls: deque[Call] = deque()
        self._serving, self._idle, self._epoch = False, False, 0
        self._finished = 0  # calls so far
        self._apart, self._pause = 0.0, APART[0]  # until when calls have threads of their own, and for how long next

    def put(self, call: Call) -> None:
        """Run a call, which raises nothing."""
        with self._lock:
            apart = time.monotonic() < self._apart
            start = not apart and not self._serving
            if not apart:
                self._serving = True
                self._calls.append(call)
                if self._idle:  # else the thread looks for more calls by itself: to wake one up takes 20 us
                    self._idle = False
                    self._lock.notify()
            epoch = self._epoch
        if apart:
            in_thread(call)
        if start:
            in_thread(lambda: self._serve(epoch))
            in_thread(lambda: self._watch(epoch))

    def _serve(self, epoch: int) -> None:
        while (call := self._next(epoch)) is not None:
            call()
            del call  # and what it holds
            self._finished += 1

    def _next(self, epoch: int) -> Call | None:
        """The next call; None where none came for a while, or where the lane was left."""
        with self._lock:
            if epoch == self._epoch and not self._calls:
                self._idle = True
                self._lock.wait(LINGER)
                self._idle = False
            if epoch != self._epoch:
                return None
            if self._calls:
                return self._calls.popleft()
            self._serving, self._epoch, self._pause = False, epoch + 1, APART[0]
            return None

    def _watch(self, epoch: int) -> None:
        """Move calls that wait for slow ones to threads of their own."""
        before = self._finished
        while epoch == self._epoch:
            time.sleep(LOOK)
            with self._lock:
                slow = epoch == self._epoch and self._calls and self._finished - before < FEWEST
                before = self._finished
                waiting = self._leave() if slow else []
            for call in waiting:
                in_thread(call)

    def _leave(self) -> list[Call]:
        """The calls that wait; their thread does not return to them."""
        self._serving, self._epoch = False, self._epoch + 1
        self._apart = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, APART[1])
        waiting = list(self._calls)
        self._calls.clear()
        return waiting


_lane = Lane()


def in_lane(call: Call) -> None:
    """Run a call, which raises nothing, beside this thread: after others that are short."""
    _lane.put(call)


def _forked() -> None:
    """A child process has none of its parent's threads."""
    global _lane
    _lane = Lane()


os.register_at_fork(after_in_child=_forked)
