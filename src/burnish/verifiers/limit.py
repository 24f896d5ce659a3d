"""A limit on the CPU time of one computation, inside of the limit that the worker has for the whole reply."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

SECONDS = 2.0


class TooSlow(Exception):
    """A computation took longer than its limit."""


@contextlib.contextmanager
def cpu_limit(seconds: float = SECONDS) -> Iterator[None]:
    """Raise TooSlow in the body after this many seconds of user CPU time.

    Python's regular expressions and pure Python code check for signals, so both can be stopped. Signals reach the main
    thread alone; in others the body has no limit of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"it took more than {seconds:g} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
