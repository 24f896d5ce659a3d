"""How long training stands still for a checkpoint: steps with and without saving, on one model.

    python scripts/measure_saving.py --model smollm2    results in benchmarks/results/saving.json

GRPO runs for a number of steps, and a checkpoint is taken after every second one. For each save: the seconds for which
training waited (in `save` itself, before the first update of the next step, and for the checkpoint before it), those
that the thread took to read and to write, and the step during which it wrote, beside the steps without any.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run, and gather the numbers."""
    import torch

    from burnish.checkpoint.async_save import Saver
    from burnish.config.options import configure
    from burnish.core.loop import loop
    from burnish.methods.table import find
    from burnish.run.memory import resident_mb
    from burnish.run.train import prepare

    given = {
        "prompts": arguments.prompts,
        "n": arguments.n,
        "max_new_tokens": arguments.tokens,
        "eval_tasks": 0,
        "device": "cpu",
    }
    entry = find("grpo")
    run = prepare(entry, configure(entry, "grpo", {"model": arguments.model, "out": str(folder / "run"), **given}))
    rows: list[dict[str, Any]] = []
    memory = resident_mb()
    saver = Saver(folder / "run", run.memories(), run.models, keep=1)
    with saver:
        began = time.perf_counter()
        for report in loop(run.method, run.models, run.settings, steps=arguments.steps):
            step = time.perf_counter() - began
            written = saver.finished()
            row = {
                "step_s": round(step, 3),
                "update_after_s": _before_update(report),
                "stall_ms": round(1e3 * saver.stalled(), 2),
            }
            rows.append(
                {**row, "checkpoint_written": [path.name for path in written], "memory_mb": round(resident_mb())}
            )
            print(json.dumps(rows[-1]), flush=True)
            if report.clock.step % 2:
                saver.save(report.clock.step + 1)
                rows[-1]["save_call_ms"] = round(1e3 * saver.stalled(), 2)
            began = time.perf_counter()
        saver.wait()
    size = sum(file.stat().st_size for file in (folder / "run" / "checkpoints").rglob("*") if file.is_file())
    return {
        "rows": rows,
        "checkpoint_mb": round(size / 2**20),
        "memory_before_mb": round(memory),
        "threads": torch.get_num_threads(),
    }


def _before_update(report: Any) -> float:
    """Seconds of a step in which weights keep still: everything before learn."""
    return round(sum(s for room, s in report.seconds.items() if room not in ("learn", "publish")), 3)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A step after a save begins with the reading and writing of a checkpoint; one without begins with nothing."""
    beside = [rows[i] for i in range(2, len(rows)) if "save_call_ms" in rows[i - 1]]
    alone = [rows[i] for i in range(2, len(rows)) if "save_call_ms" not in rows[i - 1]]
    stalls = [
        rows[i]["save_call_ms"] + rows[i + 1]["stall_ms"] for i in range(len(rows) - 1) if "save_call_ms" in rows[i]
    ]
    step = statistics.median(row["step_s"] for row in alone)
    return {
        "saves": len(stalls),
        "stall_ms": {"median": round(statistics.median(stalls), 2), "max": max(stalls), "first": stalls[0]},
        "share_of_a_step": round(statistics.median(stalls) / 1e3 / step, 5),
        "step_s_without_saving": round(step, 3),
        "step_s_beside_saving": round(statistics.median(row["step_s"] for row in beside), 3),
    }


def blocking(folder: Path, model: str) -> float:
    """Seconds that the same save takes when everything waits for it."""
    from burnish.checkpoint.async_save import Saver
    from burnish.config.options import configure
    from burnish.methods.table import find
    from burnish.run.train import prepare

    entry = find("sft")
    given = {"model": model, "out": str(folder / "blocking"), "eval_tasks": 0, "prompts": 1, "device": "cpu"}
    run = prepare(entry, configure(entry, "sft", given))
    from burnish.core.loop import loop

    next(iter(loop(run.method, run.models, run.settings, steps=1)))
    with Saver(folder / "blocking", run.memories(), run.models) as saver:
        began = time.perf_counter()
        saver.save(1)
        saver.wait()
        return time.perf_counter() - began


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--model", default="smollm2")
    words.add_argument("--steps", type=int, default=13)
    words.add_argument("--prompts", type=int, default=4)
    words.add_argument("--n", type=int, default=4)
    words.add_argument("--tokens", type=int, default=24)
    words.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "saving.json")
    arguments = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="burnish-saving-") as folder:
        found = measure(arguments, Path(folder))
        whole = blocking(Path(folder), arguments.model)
    asked = {key: value for key, value in vars(arguments).items() if key != "out"}
    found = {
        "asked": asked,
        "cores": os.cpu_count(),
        "summary": summary(found["rows"]),
        "blocking_save_s": round(whole, 2),
        **found,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found["summary"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
