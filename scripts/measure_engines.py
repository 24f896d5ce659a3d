"""What an engine that holds a copy of the weights costs, and what its proof can tell apart.

    python scripts/measure_engines.py --engine vllm --model tiny --steps 5 --out benchmarks/results/engines.json

Trains with GRPO. At every publish it takes the time to send the weights and to score the probe, and looks at the probe
twice: before the weights are sent, when the sampler is one update behind, and after. At the end it takes the time to
start a worker anew instead.
Results are added to the file, one row for each engine, model and way to train.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from burnish.config.options import configure
from burnish.engine.subprocess.engine import SubprocessEngine
from burnish.methods.table import find
from burnish.run.train import Run, prepare


def measured(run: Run) -> dict[str, Any]:
    """Train, and watch every publish."""
    from burnish.core.loop import loop

    policy = run.models["policy"]
    engine = policy.engine
    assert isinstance(engine, SubprocessEngine)
    seconds: dict[str, list[float]] = {"send": [], "probe": [], "step": []}
    apart: dict[str, list[float]] = {"behind": [], "sent": []}

    def publish() -> Any:
        apart["behind"].append(engine.prove().mean)
        start = time.perf_counter()
        engine.send()
        sent = time.perf_counter()
        found = engine.prove()
        seconds["send"].append(sent - start)
        seconds["probe"].append(time.perf_counter() - sent)
        apart["sent"].append(found.mean)
        return found

    start = time.perf_counter()
    engine.start()
    first = time.perf_counter() - start
    engine.publish = publish  # type: ignore[method-assign]
    logp = []
    for report in loop(run.method, run.models, run.settings, steps=run.config.options.steps):
        seconds["step"].append(sum(report.seconds.values()))
        logp.append(report.metrics.get("mismatch/logp", float("nan")))
        print(
            f"step {report.clock.step + 1}: behind {apart['behind'][-1]:.2g}, sent {apart['sent'][-1]:.2g}", flush=True
        )
    start = time.perf_counter()
    engine._launch()
    again = time.perf_counter() - start
    about = engine.about
    run.models.end()
    return {
        "sampler": about,
        "start_s": round(first, 2),
        "restart_s": round(again, 2),
        **{f"{name}_s": round(statistics.median(found), 3) for name, found in seconds.items()},
        "probe_behind": [float(f"{x:.2g}") for x in apart["behind"]],
        "probe_sent": [float(f"{x:.2g}") for x in apart["sent"]],
        "sampled_logp": [float(f"{x:.2g}") for x in logp],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--lora", type=int)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/engines.json"))
    asked = parser.parse_args()
    given = {name: getattr(asked, name) for name in ("engine", "model", "lora", "lr", "steps", "prompts")}
    given |= {"task": "add", "n": 4, "max_new_tokens": 32, "on_mismatch": "warn", "eval_tasks": 0}
    entry = find("grpo")
    run = prepare(entry, configure(entry, "grpo", {**given, "out": str(Path("runs") / f"measured-{time.time_ns()}")}))
    name = Path(asked.model).name + (f" LoRA {asked.lora}" if asked.lora else "")
    row = {"model": name, "lr": run.settings.lr, **measured(run)}
    run.folder.discard_if_unused()
    rows = json.loads(asked.out.read_text()) if asked.out.is_file() else []
    rows = [
        old for old in rows if (old["model"], old["sampler"], old["lr"]) != (row["model"], row["sampler"], row["lr"])
    ]
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps([*rows, row], indent=1) + "\n")
    print(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
