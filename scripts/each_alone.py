"""Run every fast test alone, in a process of its own; then all tests of each file in a random order.

    python scripts/each_alone.py tests/engine/test_engine.py tests/e2e/test_store.py
    python scripts/each_alone.py --sample 200      so many of all fast tests, drawn with a fixed seed

A test that passes in the suite and not alone leans on one that ran before it. The exit status is 1 where any fails.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from forked import run_pytest  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Collect, run each, and say which failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("tests", nargs="*", default=["tests"])
    parser.add_argument("--sample", type=int, help="run so many of them alone, instead of all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample and of the order")
    told = parser.parse_args()
    tests = collected(told.tests)
    some = tests if told.sample is None else random.Random(told.seed).sample(tests, min(told.sample, len(tests)))
    failed = [test for test in some if run_pytest(ROOT, [test], 600) not in (0, 5)]
    for test in failed:
        print(f"alone: {test}")
    files = sorted({test.split("::")[0] for test in some})
    disordered = [
        file for file in files if run_pytest(ROOT, [file, "-p", "shuffled"], 1800, extra={"SHUFFLED": str(told.seed)})
    ]
    for file in disordered:
        print(f"in a random order (seed {told.seed}): {file}")
    print(f"{len(some) - len(failed)} of {len(some)} tests pass alone")
    print(f"{len(files) - len(disordered)} of {len(files)} files pass in a random order")
    sys.exit(bool(failed or disordered))


def collected(where: list[str]) -> list[str]:
    """The ids of the fast tests."""
    how = ["-p", "no:cacheprovider", "--collect-only", "-q", "-o", "addopts=", "-m", "not slow"]
    found = subprocess.run([sys.executable, "-m", "pytest", *how, *where], cwd=ROOT, capture_output=True, text=True)
    return [line for line in found.stdout.splitlines() if "::" in line]


if __name__ == "__main__":
    main()
