"""Short calls in one thread, one after the other. Calls behind one that takes long get threads of their own.

Most environments answer within microseconds. A thread for each of hundreds of calls that come together would take
longer than the calls: the threads wait for the interpreter's lock in turn.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from burnish.util.threads import Call, in_thread

STUCK = 0.05  # seconds after which a call takes long; less is often a wait for the interpreter's lock
APART = 1.0, 64.0  # seconds after such a call in which every call gets a thread of its own: twice as long every time
LINGER = 0.05  # seconds in which the thread waits for more calls


class Lane:
    """serving: whether a thread takes the calls. epoch: of that thread; one that is stuck has an older one."""

    def __init__(self) -> None:
        self._lock = threading.Condition(threading.Lock())
        self._calls: deque[Call] = deque()
        self._serving, self._idle, self._epoch = False, False, 0
        self._began = self._apart = 0.0  # when the running call began; until when calls have threads of their own
        self._pause = APART[0]

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
            self._began = time.monotonic()
            call()
            del call  # and what it holds
            if epoch == self._epoch:
                self._began = 0.0

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
        """Move the calls behind one that takes long to threads of their own."""
        before = 0.0
        while epoch == self._epoch:
            time.sleep(STUCK)
            with self._lock:
                stuck = epoch == self._epoch and self._began == before != 0.0
                before = self._began
                behind = self._leave() if stuck else []
            for call in behind:
                in_thread(call)

    def _leave(self) -> list[Call]:
        """The calls that wait; their thread does not return to them."""
        self._serving, self._epoch, self._began = False, self._epoch + 1, 0.0
        self._apart = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, APART[1])
        behind = list(self._calls)
        self._calls.clear()
        return behind


_lane = Lane()


def in_lane(call: Call) -> None:
    """Run a call, which raises nothing, beside this thread: after others that are short."""
    _lane.put(call)


def _forked() -> None:
    """A child process has none of its parent's threads."""
    global _lane
    _lane = Lane()


os.register_at_fork(after_in_child=_forked)
