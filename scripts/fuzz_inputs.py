"""Give burnish hundreds of bad inputs in one process, and count tracebacks: each should be answered in one sentence.

    python scripts/fuzz_inputs.py                    500 inputs with seed 0; exit 1 after a traceback or a hang
    python scripts/fuzz_inputs.py --kinds words,yaml --n 100 --seed 7

Kinds: words (commands and flags), yaml (files of options), data (datasets), models (model directories). The same seed
gives the same inputs. An input that burnish accepts (a damaged file may still be a good one) is fine; it runs one step.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bad_inputs import KINDS, Case, cases

SECONDS = 20  # that one input may take


@dataclass
class Outcome:
    """How it ended: `refused`, `accepted`, `traceback` or `hang`; `where` is the last line of burnish
    in the traceback.
    """

    case: Case
    ending: str
    where: str = ""
    error: str = ""


class Hang(BaseException):
    """An input took too long."""


def give(case: Case) -> Outcome:
    """Give one input to the command line in this process."""
    from burnish.cli import main

    def stop(number: int, frame: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace") for _ in range(2))
    given, sys.stdin = sys.stdin, io.StringIO("")
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(case.words))
    except Hang as hang:
        return Outcome(case, "hang", _where(hang))
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except Exception as error:
        return Outcome(case, "traceback", _where(error), f"{type(error).__name__}: {str(error)[:200]}")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        sys.stdin = given
    err.flush()
    said = err.buffer.getvalue().decode(errors="replace")  # type: ignore[attr-defined]  # a BytesIO
    if "Traceback (most recent call last)" in said:
        return Outcome(case, "traceback", "printed", said[-300:])
    return Outcome(case, "refused" if code else "accepted", error=said.strip()[-200:])


def _where(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "burnish" in frame.filename]
    return f"{'/'.join(Path(frames[-1].filename).parts[-2:])}:{frames[-1].lineno}" if frames else "outside burnish"


def fuzz(n: int, seed: int, kinds: tuple[str, ...] = KINDS, seconds: float = math.inf) -> Iterator[Outcome]:
    """Give so many inputs, from a folder of their own, which also takes the runs that were accepted after all.

    After so many seconds no more are given.
    """
    here, end = Path.cwd(), time.monotonic() + seconds
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chdir(folder)
        try:
            for case in cases(n, seed, Path(folder), kinds):
                yield give(case)
                if time.monotonic() > end:
                    break
        finally:
            os.chdir(here)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    options = parser.parse_args()
    began, counts, wrong = time.monotonic(), Counter[str](), Counter[tuple[str, str, str]]()
    for outcome in fuzz(options.n, options.seed, tuple(options.kinds.split(","))):
        counts[outcome.ending] += 1
        if outcome.ending in ("traceback", "hang"):
            key = (outcome.ending, outcome.where, outcome.error.partition(":")[0])
            if not wrong[key]:
                print(f"{outcome.ending} at {outcome.where}: {outcome.error}")
                print(f"    {[w[:80] for w in outcome.case.words]} {outcome.case.what[:200]!r}", flush=True)
            wrong[key] += 1
    print(
        f"{options.n} inputs in {time.monotonic() - began:.0f} s: "
        + ", ".join(f"{n} {ending}" for ending, n in counts.most_common())
    )
    for (ending, where, error), n in wrong.most_common():
        print(f"  {n} {ending} {where} {error}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
