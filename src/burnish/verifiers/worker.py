"""The verifier process: `python -m burnish.verifiers.worker DESCRIPTOR`, started by `verifier.py`.

Requests and answers are lines of JSON. {"spec": ...} builds a scorer; with "facts" and "items" it scores replies and
answers with a line per item, so that the reply that causes a hang is known. The process enters the sandbox after the
first scorer is built (with its imports) and before the first reply is read. No torch here, so that a killed worker
restarts quickly.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import tempfile
from typing import Any, TextIO

from burnish.sandbox import isolation as sandbox
from burnish.sandbox.codec import decode
from burnish.sandbox.guard import fork_guard, scratch_folder
from burnish.util.failures import said
from burnish.util.processes import hush
from burnish.verifiers.checks import BadRow, ReplyCheck, make


def main(stack_fd: int) -> None:
    """Answer requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    scratch = scratch_folder("burnish-verifier-")
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    fork_guard(answers.fileno(), stack_fd, scratch=scratch)
    faulthandler.register(signal.SIGUSR1, file=stack_fd, all_threads=False)
    sys.path[:] = [place for place in sys.path if place.startswith("/")]
    sys.dont_write_bytecode = True
    _say(answers, {"pid": os.getpid()})
    scorers: dict[str, ReplyCheck[Any]] = {}
    isolation: dict[str, str] = {}
    for line in sys.stdin:
        request = json.loads(line)
        name = json.dumps(request["spec"], sort_keys=True)
        if "items" not in request:
            try:
                scorers[name] = make(decode(request["spec"]))
                if not isolation:
                    hush()  # what it wrote while it started was kept for a message
                    isolation = sandbox.enter(scratch)
            except Exception as error:  # noqa: BLE001 - sent to the caller
                _say(answers, {"error": f"{type(error).__name__}: {said(error)}"[:1000]})
            else:
                _say(answers, {"isolation": isolation})
            continue
        facts = [decode(one) for one in request["facts"]]
        for number, (k, reply) in enumerate(request["items"]):
            _say(answers, {"number": number, **_judged(scorers[name], facts[k], reply, request["seconds"])})


def _judged(scorer: ReplyCheck[object], facts: object, reply: str, seconds: float) -> dict[str, object]:
    sandbox.limit_cpu(seconds)
    try:
        verdict = scorer.verdict(facts, reply)
    except MemoryError:
        return {"failed": f"it needed more than {sandbox.MEMORY >> 20} MiB of memory"}
    except BadRow as error:
        return {"bad_row": said(error)[:1000]}
    except BaseException as error:  # noqa: BLE001 - SystemExit too: a reply must not end the process
        return {"raised": f"{type(error).__name__}: {said(error)[:500]}"}
    return {"score": float(verdict.score), "correct": bool(verdict.correct), "reason": verdict.reason[:2000]}


def _say(answers: TextIO, what: dict[str, object]) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
