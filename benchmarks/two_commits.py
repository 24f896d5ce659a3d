"""Seconds a step of GRPO on `tiny` in two source trees, run in turns: does a change make training slower?

    git worktree add /tmp/before COMMIT
    python benchmarks/two_commits.py /tmp/before/src src --out benchmarks/results/restructure_cpu.json

A step is (wall time of 70 steps - wall time of 10) / 60, so that start-up does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

QUIET = ("--eval-tasks", "0", "--eval-every", "0", "--save-every", "0", "--quiet")


def wall(source: str, steps: int) -> float:
    """Seconds of a whole run."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", "grpo", "--task", "add", "--steps", str(steps), *QUIET, "--out", f"{folder}/run"]
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "burnish.cli", *words],
            env={**os.environ, "PYTHONPATH": source},
            check=True,
            capture_output=True,
        )
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    seconds: dict[str, list[float]] = {"old": [], "new": []}
    for _ in range(given.turns):
        for name, source in (("old", given.old), ("new", given.new)):
            short, long = wall(source, 10), wall(source, 70)
            seconds[name].append((long - short) / 60)
        print({name: round(statistics.median(found), 4) for name, found in seconds.items()}, flush=True)
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    if given.out:
        given.out.write_text(json.dumps({"what": __doc__, "seconds": seconds, "median": medians}, indent=1) + "\n")


if __name__ == "__main__":
    main()
