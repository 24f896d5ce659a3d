"""The process of a reward function with a time limit: `python -m ...grader_process FILE.py:FUNCTION FD`.

Requests are lines of JSON on standard input, answers lines of JSON on the original standard output; the function's own
output goes to standard error. SIGUSR1 writes the function's stack to the descriptor FD. The process has a guard: when
the run or the process ends, everything that the function started is killed. No torch here, so that a killed grader
restarts quickly.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from typing import Any, TextIO, TypedDict

from burnish.core.rejected import NotFinite
from burnish.reward_functions.call import RewardCall, WrongShape
from burnish.reward_functions.load import load_function
from burnish.sandbox.guard import fork_guard


def main(spec: str, stack_fd: str) -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    fork_guard(answers.fileno(), int(stack_fd))
    faulthandler.register(signal.SIGUSR1, file=int(stack_fd), all_threads=False)
    try:
        call = RewardCall(load_function(spec))
    except (ValueError, KeyboardInterrupt) as error:
        _say(answers, {"error": str(error) or f"reward {spec!r}: loading it raised KeyboardInterrupt; fix it"})
        return
    _say(answers, {"pid": os.getpid()})
    for line in sys.stdin:
        _say(answers, _answer(call, json.loads(line)))


class Request(TypedDict):
    """One call. columns: the data of the tasks, by name."""

    prompts: list[Any]
    completions: list[str]
    columns: dict[str, list[Any]]


def _answer(call: RewardCall, request: Request) -> dict[str, object]:
    try:
        return {"scores": call(request["prompts"], request["completions"], request["columns"])}
    except NotFinite as error:
        return {"not_finite": str(error)}
    except WrongShape as error:
        return {"wrong_shape": str(error)}
    except ValueError as error:
        return {"error": str(error)}
    except KeyboardInterrupt:  # raised by the function itself: Ctrl-C does not reach this process
        return {"error": "the reward function raised KeyboardInterrupt; fix the function"}


def _say(answers: TextIO, what: dict[str, object]) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
