"""The process in which a reward function with a time limit runs: `python -m burnish.tasks.grader FILE.py:FUNCTION`.

A request is a line of JSON on standard input, an answer a line of JSON on what was standard output; what the function
itself prints goes to standard error. SIGUSR1 writes where the function is to the file named as second argument.
Nothing here imports torch: a grader that was killed must be back soon.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import sys
from typing import Any

from burnish.refusal import NotFinite
from burnish.tasks.rewards import RewardFunction, call_reward, load_function


def main(spec: str, whereabouts: str) -> None:
    """Answer until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _die_with_parent()
    place = open(whereabouts, "w")  # noqa: SIM115 - it stays open for the handler
    faulthandler.register(signal.SIGUSR1, file=place, all_threads=False)
    try:
        function = load_function(spec)
    except ValueError as error:
        _say(answers, {"error": str(error)})
        return
    _say(answers, {"ready": True})
    for line in sys.stdin:
        _say(answers, _answer(function, json.loads(line)))


def _answer(function: RewardFunction, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"scores": call_reward(function, asked["prompts"], asked["completions"], asked["columns"])}
    except NotFinite as error:
        return {"not_finite": str(error)}
    except ValueError as error:
        return {"error": str(error)}


def _say(answers: Any, what: dict[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def _die_with_parent() -> None:
    """A function that hangs would outlive a run that was killed: on Linux the system ends it with its parent."""
    with contextlib.suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    main(*sys.argv[1:])
