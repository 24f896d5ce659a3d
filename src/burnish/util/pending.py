"""What a call in another thread will give. As concurrent.futures.Future, made and read in a fraction of its time.

An episode has one for each of its turns.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


class Pending:
    """The result of a call that runs, or has run."""

    __slots__ = ("_error", "_event", "_then", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: object = None
        self._error: BaseException | None = None
        self._event: threading.Event | None = None
        self._then: Callable[[], None] | None = None

    def finish(self, value: object = None, error: BaseException | None = None) -> None:
        """The call has given a value, or raised an error."""
        with _lock:
            self._value, self._error, self.done = value, error, True
            event, then = self._event, self._then
        if event is not None:
            event.set()
        if then is not None:
            then()

    def then(self, call: Callable[[], None]) -> None:
        """Call something as soon as the result is there, once; in the thread that finishes it, or now."""
        with _lock:
            done = self.done
            if not done:
                self._then = call
        if done:
            call()

    def result(self, seconds: float) -> object:
        """The value; its error is raised, and TimeoutError where there is none after so many seconds."""
        if not self.done:
            with _lock:
                if not self.done and self._event is None:
                    self._event = threading.Event()
                event = self._event
            if event is not None:
                event.wait(seconds)
        if not self.done:
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value


_lock = threading.Lock()


def _forked() -> None:
    """Another thread of the parent may have held the lock."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)
