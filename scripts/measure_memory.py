"""Memory of a run over 10,000 steps of `tiny`: measured, tested for growth, and plotted.

    python scripts/measure_memory.py            benchmarks/results/memory.json and docs/performance/memory.svg
    python scripts/measure_memory.py --plot     draw the stored result again

`burnish train` runs in a process of its own, with small batches, checkpoints and held-out evaluations. The memory of
that process after every step comes from its run store; this script adds that of the processes that it started (the
verifier's workers), twice a second. Both must be flat: `growth` compares the medians of the last tenth of the steps and
of the second tenth (the first holds the start: buffers, the first checkpoint, the first evaluation).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ALLOWED_MB = 16.0  # growth that counts as flat: what an allocator keeps
POINTS = 200  # of the stored curve: the median and the largest of each interval


def resident_mb(pid: int) -> float:
    """Resident memory of a process in MiB; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, IndexError):
        return 0.0


def below(pid: int) -> list[int]:
    """The ids of all processes that a process started, and of those that they started."""
    found = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in thread.read_text().split()]
        except OSError:  # the thread has ended
            continue
        found += [one for child in children for one in (child, *below(child))]
    return found


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run, sample the memory of the processes below the run, and read that of the run from its store."""
    words = [sys.executable, "-m", "burnish.cli", "train", arguments.method, "--out", str(folder / "run"), "--quiet"]
    for name in ("steps", "prompts", "n", "task", "lr"):
        words += [f"--{name}", str(getattr(arguments, name))]
    words += ["--max-new-tokens", str(arguments.tokens), "--device", "cpu", "--eval-tasks", "4", "--keep", "2"]
    words += ["--eval-every", str(arguments.steps // 20), "--save-every", str(arguments.steps // 20)]
    began = time.monotonic()
    workers: list[list[float]] = []  # seconds since the start, MiB of all the processes below the run
    with (folder / "output.txt").open("w") as output:
        run = subprocess.Popen(words, stdout=output, stderr=output, env={**os.environ, "OMP_NUM_THREADS": "1"})
        while run.poll() is None:
            workers.append([time.monotonic() - began, sum(map(resident_mb, below(run.pid)))])
            time.sleep(0.5)
    if run.returncode:
        raise RuntimeError(f"the run ended with {run.returncode}:\n{(folder / 'output.txt').read_text()[-3000:]}")
    from burnish.store.reader import open_store

    with open_store(folder / "run") as store:
        held = [row["mb"] for row in store.sql("SELECT mb FROM memory ORDER BY step")]
        size = sum(file.stat().st_size for file in (folder / "run").glob("store.sqlite*"))
    return {
        "seconds": round(time.monotonic() - began, 1),
        "store_mb": round(size / 2**20, 1),
        "run": curve(held),
        "workers": curve([mb for _, mb in workers]),
        "summary": {"run": growth(held), "workers": growth([mb for _, mb in workers])},
    }


def curve(held: list[float]) -> list[list[float]]:
    """(position from 0 to 1, median, largest) of intervals of equal length."""
    width = max(1, len(held) // POINTS)
    parts = [(i, held[i : i + width]) for i in range(0, len(held), width)]
    return [[round(i / len(held), 4), round(statistics.median(p), 2), round(max(p), 2)] for i, p in parts]


def growth(held: list[float]) -> dict[str, float]:
    """Medians of the second and of the last tenth, in MiB, and their difference."""
    tenth = max(1, len(held) // 10)
    early, late = statistics.median(held[tenth : 2 * tenth]), statistics.median(held[-tenth:])
    numbers = {"early_mb": early, "late_mb": late, "growth_mb": late - early, "max_mb": max(held)}
    return {name: round(value, 3) for name, value in numbers.items()}


def plot(found: dict[str, Any]) -> str:
    """Both curves over the steps, from zero."""
    from burnish.report.charts import Line, line_chart, standalone

    steps = found["asked"]["steps"]
    lines = [Line(label, [(x * steps, y) for x, y, _ in found[key]]) for label, key in NAMES.items()]
    top = 1.1 * max(y for key in NAMES.values() for _, y, _ in found[key])
    title = f"Resident memory over {steps:,} steps"
    return standalone(line_chart(lines, title=title, x="step", y="MiB", y_range=(0.0, top)))


NAMES = {"run": "run", "verifier workers": "workers"}  # label -> key


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--method", default="grpo")
    words.add_argument("--task", default="add")
    words.add_argument("--steps", type=int, default=10_000)
    words.add_argument("--prompts", type=int, default=2)
    words.add_argument("--n", type=int, default=2)
    words.add_argument("--tokens", type=int, default=8)
    words.add_argument("--lr", type=float, default=1e-5)
    words.add_argument("--plot", action="store_true", help="draw the stored result, and run nothing")
    words.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "memory.json")
    words.add_argument("--picture", type=Path, default=ROOT / "docs" / "performance" / "memory.svg")
    arguments = words.parse_args()
    if not arguments.plot:
        with tempfile.TemporaryDirectory(prefix="burnish-memory-") as folder:
            found = measure(arguments, Path(folder))
        asked = {k: v for k, v in vars(arguments).items() if k not in ("out", "picture", "plot")}
        machine = {"python": platform.python_version(), "cores": os.cpu_count()}
        arguments.out.write_text(json.dumps({"asked": asked, "machine": machine, **found}, indent=1) + "\n")
    found = json.loads(arguments.out.read_text())
    arguments.picture.write_text(plot(found))
    print(json.dumps(found["summary"], indent=1))
    return int(any(one["growth_mb"] > ALLOWED_MB for one in found["summary"].values()))


if __name__ == "__main__":
    sys.exit(main())
