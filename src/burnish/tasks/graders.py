"""Calls of a reward function that run beside each other, and beside whatever else the run does: while replies are written."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

Ask = Callable[..., list]
_Waiting = queue.SimpleQueue  # of (arguments, the answer to be), or None: end


class Graders:
    """One thread for each of the given callables; a call goes to whichever is free.

    The threads end with this object, and never keep a program from ending: a function that hangs must not hold it.
    """

    def __init__(self, asks: Sequence[Ask]) -> None:
        self._waiting: _Waiting = queue.SimpleQueue()
        for number, ask in enumerate(asks):
            name = f"burnish-grader-{number}"
            threading.Thread(target=_work, args=(ask, self._waiting), name=name, daemon=True).start()
        weakref.finalize(self, _end, self._waiting, len(asks))

    def begin(self, *asked: Any) -> Future[list]:
        """Have something judged; its answer, or its error, is the future's result."""
        answer: Future[list] = Future()
        self._waiting.put((asked, answer))
        return answer


def _work(ask: Ask, waiting: _Waiting) -> None:
    while (call := waiting.get()) is not None:
        asked, answer = call
        try:
            answer.set_result(ask(*asked))
        except BaseException as error:  # noqa: BLE001 - raised again where the answer is wanted
            answer.set_exception(error)
        del call, asked, answer  # an idle thread keeps nothing alive


def _end(waiting: _Waiting, threads: int) -> None:
    for _ in range(threads):
        waiting.put(None)
