"""A process that does runs one after the other: jobs come as lines of JSON on standard input, news go out on standard output.

    {"event": "progress", "used": 0.4, "steps": 12, "value": 0.81}
    {"event": "found", "found": {...}}        done, or failed with its reason
    {"event": "stopped"}                      Ctrl-C; the run is saved and can go on

Whatever libraries print goes to standard error, so that the news stay readable.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from typing import Any, TextIO

from burnish.compare.job import Job, failed


def main() -> int:
    """Serve jobs until standard input ends."""
    news = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    from burnish.compare.single import Stopped  # imported once the news are safe from what libraries print

    _say(news, event="ready")
    try:
        for line in sys.stdin:
            _serve(Job.from_json(json.loads(line)), news)
    except (KeyboardInterrupt, Stopped):
        _say(news, event="stopped")
        return 130
    return 0


def _serve(job: Job, news: TextIO) -> None:
    from burnish.compare.single import Stopped, run_job

    def tell(used: float, steps: int, value: float | None) -> None:
        _say(news, event="progress", used=used, steps=steps, value=value)

    try:
        found = run_job(job, tell)
    except Stopped:
        raise
    except Exception as error:  # whatever a method of somebody's own may raise: one run's failure is not the others'
        traceback.print_exc()  # into the log of this process; the row gets the sentence
        found = failed(job, _sentence(error))
    _say(news, event="found", found=found.to_json())
    _free()


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split()) or "no message"
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return f"{kind}{text}"[:400]


def _free() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _say(news: TextIO, **what: Any) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody listens any more: the files have it all
        news.write(json.dumps(what) + "\n")


if __name__ == "__main__":
    sys.exit(main())
