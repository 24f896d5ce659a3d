"""Worker process of the pool: reads jobs as lines of JSON from standard input, writes messages to standard output.

    {"event": "progress", "used": 0.4, "steps": 12, "value": 0.81}
    {"event": "result", "result": {...}}      finished, or failed with a reason
    {"event": "stopped"}                      Ctrl-C; the run is saved and can be resumed

The output of libraries is redirected to standard error, so that standard output has messages only.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from typing import TextIO

from burnish.compare.job import Job, failed


def main() -> int:
    """Run jobs until standard input ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    from burnish.compare.single import Stopped  # imported after the redirection, because libraries may print

    _send(out, event="ready")
    try:
        for line in sys.stdin:
            _serve(Job.from_json(json.loads(line)), out)
    except (KeyboardInterrupt, Stopped):
        _send(out, event="stopped")
        return 130
    return 0


def _serve(job: Job, out: TextIO) -> None:
    from burnish.compare.single import Stopped, run_job

    def on_progress(used: float, steps: int, value: float | None) -> None:
        _send(out, event="progress", used=used, steps=steps, value=value)

    try:
        result = run_job(job, on_progress)
    except Stopped:
        raise
    except Exception as error:  # a user's method may raise anything, and must not stop the other runs
        traceback.print_exc()  # into this worker's log; the result has one sentence
        result = failed(job, _sentence(error))
    _send(out, event="result", result=result.to_json())
    _free()


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split()) or "no message"
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return f"{kind}{text}"[:400]


def _free() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _send(out: TextIO, **message: object) -> None:
    with contextlib.suppress(BrokenPipeError):  # the pool is gone; the run's files have the result
        out.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    sys.exit(main())
