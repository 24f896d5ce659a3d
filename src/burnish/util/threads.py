"""Calls in threads of their own: a call that never ends costs its thread and nothing else.

A pool with a fixed number of threads would stop when as many calls hang. Here a thread that is free is used again, and
where none is free another is started. To start one takes ten times as long as to wake one up.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

IDLE = 64  # free threads that are kept
SECONDS = 10.0  # for so long
SWITCH = 0.0005  # seconds for which a thread keeps the interpreter's lock while another waits for it
Call = Callable[[], None]


class _Worker:
    def __init__(self, first: Call) -> None:
        self.calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self.calls.put(first)
        threading.Thread(target=self._run, daemon=True, name="environment").start()

    def _run(self) -> None:
        while (call := self._next()) is not None:
            call()
            del call  # and what it holds
            with _lock:
                if len(_free) >= IDLE:
                    return
                _free.append(self)

    def _next(self) -> Call | None:
        """The next call; None where none came."""
        while True:
            try:
                return self.calls.get(timeout=SECONDS)
            except queue.Empty:
                with _lock:
                    if self in _free:
                        _free.remove(self)
                        return None


_free: list[_Worker] = []
_lock = threading.Lock()


def in_thread(call: Call) -> None:
    """Run a call, which raises nothing, in a thread."""
    with _lock:
        worker = _free.pop() if _free else None
    if worker is None:
        _Worker(call)
    else:
        worker.calls.put(call)


@contextmanager
def quick_switches() -> Iterator[None]:
    """Inside, a thread that waits for the interpreter's lock gets it after half a millisecond.

    By default it takes five. The thread that launches a GPU's kernels gives the lock away hundreds of times in a step,
    and threads that encode the next step's texts would take it for so long each time.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _forked() -> None:
    """A child process has none of its parent's threads."""
    global _lock
    _lock = threading.Lock()
    _free.clear()


os.register_at_fork(after_in_child=_forked)
