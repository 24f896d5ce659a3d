"""How fast the code sandbox is: one run after the other, and as many as the cores allow.

    python benchmarks/code_sandbox.py                  measures, and writes benchmarks/results/code_sandbox.json
    python benchmarks/code_sandbox.py --results FILE   writes it elsewhere

Each number is the median of several rounds; the raw times, the load of the machine and its cores are in the file. A
fresh Python process for each program is measured beside it, with no isolation at all.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from burnish.verifiers.code.grader import CodeGrader, Problem
from burnish.verifiers.code.tests import Asserts, Call, Calls, Scripts, Tests

RESULTS = Path(__file__).parent / "results" / "code_sandbox.json"
CHECK = "def check(candidate):\n" + "".join(f"    assert candidate({x}) == {x + 1}\n" for x in range(10))
KINDS: dict[str, tuple[Tests, str]] = {
    "calls": (Calls(tuple(Call("f", (x,), x + 1) for x in range(10))), "def f(x):\n    return x + 1\n"),
    "test code": (Asserts((CHECK,), entry="f"), "def f(x):\n    return x + 1\n"),
    "script": (Scripts((("41\n", "42\n"),)), "print(int(input()) + 1)\n"),
}


def one_by_one(grader: CodeGrader, kind: str, count: int) -> list[float]:
    """Seconds of each of `count` gradings, one after the other."""
    tests, code = KINDS[kind]
    times = []
    for _ in range(count):
        start = time.perf_counter()
        assert grader.outcomes([Problem(tests)], [code])[0].correct
        times.append(time.perf_counter() - start)
    return times


def at_once(grader: CodeGrader, kind: str, count: int) -> float:
    """Gradings per second of one batch."""
    tests, code = KINDS[kind]
    start = time.perf_counter()
    found = grader.outcomes([Problem(tests)] * count, [code] * count)
    assert all(outcome.correct for outcome in found)
    return count / (time.perf_counter() - start)


def fresh_python(count: int) -> list[float]:
    """Seconds of a program in a new Python process each, without isolation."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", KINDS["script"][1]], input=b"41\n", capture_output=True
        )
        assert done.stdout == b"42\n"
        times.append(time.perf_counter() - start)
    return times


def summary(times: list[float]) -> dict[str, Any]:
    milliseconds = sorted(1000 * one for one in times)
    return {
        "p50_ms": statistics.median(milliseconds),
        "p90_ms": milliseconds[int(0.9 * len(milliseconds))],
        "ms": [round(one, 3) for one in milliseconds],
    }


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--results", type=Path, default=RESULTS)
    reader.add_argument("--count", type=int, default=200, help="gradings in a round (default: 200)")
    reader.add_argument("--rounds", type=int, default=5, help="rounds of the throughput (default: 5)")
    told = reader.parse_args()
    found: dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "load_before": os.getloadavg(),
        "kinds": {},
    }
    start = time.perf_counter()
    grader = CodeGrader()
    grader.prepare()
    found["start_ms"] = 1000 * (time.perf_counter() - start)
    found["isolation"] = grader.isolation
    for kind in KINDS:
        one_by_one(grader, kind, 20)
        latency = summary(one_by_one(grader, kind, told.count))
        rates = [at_once(grader, kind, told.count) for _ in range(told.rounds)]
        found["kinds"][kind] = {
            "latency": latency,
            "per_second": statistics.median(rates),
            "per_second_of_rounds": rates,
        }
        said = f"{kind}: p50 {latency['p50_ms']:.1f} ms, p90 {latency['p90_ms']:.1f} ms"
        print(f"{said}, {statistics.median(rates):.0f} a second")
    grader.end()
    found["fresh_python"] = summary(fresh_python(told.count // 4))
    found["load_after"] = os.getloadavg()
    print(f"a fresh Python process without isolation: p50 {found['fresh_python']['p50_ms']:.1f} ms")
    told.results.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
