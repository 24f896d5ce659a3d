"""Give burnish hundreds of bad inputs in one process, and count tracebacks: each should be answered in one sentence.

    python scripts/fuzz_inputs.py                    1,600 inputs with seed 0; exit 1 after a traceback or a hang
    python scripts/fuzz_inputs.py --kinds words,yaml --n 100 --seed 7
    python scripts/fuzz_inputs.py --out benchmarks/results/bad_inputs.json
    python scripts/fuzz_inputs.py --table            the table of docs/reliability.md, from the stored results

Kinds: words (commands and flags), yaml (files of options), recipes, imports (configurations of other libraries), data
(JSON lines), tables (CSV, Parquet), chats, models (directories), checkpoints (run folders), swarm (files of other
nodes), rewards, environments and tools (functions and classes of the user), judges (answers of an endpoint), serve and
dashboard (requests). The same seed gives the same inputs. An input that burnish accepts (a damaged file may still be a
good one) is fine; it runs one step. Endings:

    refused    exit code 2, or 1 of `burnish doctor` that found damage; a request: a status from 400 on
    accepted   exit code 0
    and wrong  a traceback, a hang, an exit code or a status that says something else, an exit code without a word
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bad_inputs import KINDS, Case, Wrong, cases

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "bad_inputs.json"
FINE = ("refused", "accepted")
SECONDS = 60  # that one input may take


@dataclass
class Outcome:
    """How it ended, after how many seconds; `where` is the last line of burnish in a traceback."""

    case: Case
    ending: str
    where: str = ""
    error: str = ""
    seconds: float = 0.0


class Hang(BaseException):
    """An input took too long."""


def give(case: Case) -> Outcome:
    """Give one input, and time it."""
    began = time.monotonic()
    found = _given(case)
    found.seconds = round(time.monotonic() - began, 2)
    return found


def _given(case: Case) -> Outcome:
    """Give one input to the command line in this process, or in the way of the case."""
    from burnish.cli import main

    def stop(number: int, frame: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace") for _ in range(2))
    given, sys.stdin = sys.stdin, io.StringIO("")
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = case.call() if case.call is not None else main(list(case.words))
    except Hang as hang:
        return Outcome(case, "hang", _where(hang))
    except Wrong as answer:
        return Outcome(case, "wrong answer", str(answer)[:60], str(answer)[:300])
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
    out.flush()
    told = said.strip() or out.buffer.getvalue().decode(errors="replace").strip()  # type: ignore[attr-defined]
    if code and case.call is None and not told:
        return Outcome(case, "silent", f"exit code {code}")
    if code not in (0, 2) and not (code == 1 and (case.words[:1] == ["doctor"] or "out of memory" in told)):
        return Outcome(case, "exit code", str(code), told[-300:])
    return Outcome(case, "refused" if code else "accepted", error=told[-200:])


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


def table(found: dict[str, Any]) -> str:
    """Markdown: the endings by kind of input."""
    lines = [
        "| input | given | refused | accepted | tracebacks | hangs | other wrong endings |",
        "|---|---|---|---|---|---|---|",
    ]
    total = Counter[str]()
    for kind, counts in [*found["kinds"].items(), ("all", total)]:
        wrong = sum(n for ending, n in counts.items() if ending not in (*FINE, "traceback", "hang"))
        cells = [counts.get(ending, 0) for ending in (*FINE, "traceback", "hang")]
        lines.append(f"| {' | '.join(map(str, (kind, sum(counts.values()), *cells, wrong)))} |")
        total.update(counts if kind != "all" else {})
    return "\n".join(lines)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--out", type=Path, help="a JSON file for the counts")
    parser.add_argument("--table", action="store_true", help="print the stored counts as a table, and give nothing")
    return parser.parse_args()


def main() -> int:
    asked = options()
    if asked.table:
        print(table(json.loads((asked.out or RESULT).read_text())))
        return 0
    began, counts, wrong = time.monotonic(), defaultdict(Counter[str]), Counter[tuple[str, str, str]]()
    slowest = dict.fromkeys(KINDS, 0.0)
    for outcome in fuzz(asked.n, asked.seed, tuple(asked.kinds.split(","))):
        kind = outcome.case.kind
        counts[kind][outcome.ending] += 1
        slowest[kind] = max(slowest[kind], outcome.seconds)
        if outcome.ending not in FINE:
            key = (outcome.ending, outcome.where, outcome.error.partition(":")[0][:80])
            if not wrong[key]:
                print(f"{outcome.ending} at {outcome.where}: {outcome.error}")
                print(
                    f"    {[w[:80] for w in outcome.case.words]} {outcome.case.kind} {outcome.case.what[:200]!r}",
                    flush=True,
                )
            wrong[key] += 1
    seconds = time.monotonic() - began
    found = {
        "n": asked.n,
        "seed": asked.seed,
        "seconds": round(seconds),
        "python": platform.python_version(),
        "kinds": {kind: dict(counted) for kind, counted in counts.items()},
        "slowest_s": {kind: slowest[kind] for kind in counts},
        "wrong": [{"ending": e, "where": w, "error": x, "times": n} for (e, w, x), n in wrong.most_common()],
    }
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{asked.n} inputs in {seconds:.0f} s\n{table(found)}")
    for (ending, where, error), n in wrong.most_common():
        print(f"  {n} {ending} {where} {error}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
