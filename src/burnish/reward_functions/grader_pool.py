"""Concurrent calls of a reward function in threads, while replies are still being sampled."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from burnish.reward_functions.reward import Found

Ask = Callable[..., Found]
_Call = tuple[tuple[object, ...], Future[Found]]
_Waiting = queue.SimpleQueue[_Call | None]  # None ends a thread


class Graders:
    """One thread per given callable; a call goes to the next free thread.

    The threads end with this object. They are daemons, so a hanging function cannot keep the program alive.
    """

    def __init__(self, asks: Sequence[Ask]) -> None:
        self._waiting: _Waiting = queue.SimpleQueue()
        for number, ask in enumerate(asks):
            name = f"burnish-grader-{number}"
            threading.Thread(target=_work, args=(ask, self._waiting), name=name, daemon=True).start()
        weakref.finalize(self, _end, self._waiting, len(asks))

    def begin(self, *arguments: object) -> Future[Found]:
        """Queue a call; the future gets its result or its error."""
        future: Future[Found] = Future()
        self._waiting.put((arguments, future))
        return future


def _work(ask: Ask, waiting: _Waiting) -> None:
    while (call := waiting.get()) is not None:
        arguments, future = call
        try:
            future.set_result(ask(*arguments))
        except BaseException as error:  # noqa: BLE001 - the future raises it again
            future.set_exception(error)
        del call, arguments, future  # so that an idle thread keeps nothing alive


def _end(waiting: _Waiting, threads: int) -> None:
    for _ in range(threads):
        waiting.put(None)
