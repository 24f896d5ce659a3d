"""Calls in threads of their own: a call that never ends costs its thread and nothing else.

A pool with a fixed number of threads would stop when as many calls hang. Here a thread that is free is used again, and
where none is free another is started. To start one takes ten times as long as to wake one up.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

IDLE = 64  # free threads that are kept
SECONDS = 10.0  # for so long
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


def _forked() -> None:
    """A child process has none of its parent's threads."""
    global _lock
    _lock = threading.Lock()
    _free.clear()


os.register_at_fork(after_in_child=_forked)
