"""SCoRe on two attempts at sums: what the second attempt makes of the first, before and after.

    python benchmarks/self_correction.py --seeds 3

The embedded model answers the last message alone, so it is first taught conversations of two attempts (SFT): 40% right
twice, 35% with the same mistake twice, 25% in which the second attempt corrects the first. Then `burnish train score`
trains it, with the paper's bonus (alpha = 10) and without (alpha = 0). Held-out sums, sampled at temperature 1.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import burnish
from burnish.commands.loaded import load_policy
from burnish.core.step import Settings, Step
from burnish.core.types import Clock
from burnish.methods.table import find
from burnish.tasks.resolve import resolve_task

TASK, AGAIN = "add:2", "There might be an error in the answer above. Correct it, and answer again."
QUIET = {"eval_tasks": 0, "eval_every": 0, "record": 0}
RESULTS = Path(__file__).parent / "results" / "self_correction.json"


def conversations(file: Path, count: int = 3000) -> None:
    """Conversations of two attempts."""
    source, dice = resolve_task(TASK), random.Random(0)
    with file.open("w") as out:
        for i in range(count):
            task = source.task("train", 10_000_000 + i)
            right, wrong = task.given["demo"], task.given["mistake"]
            first, second = dice.choices([(right, right), (wrong, wrong), (wrong, right)], [40, 35, 25])[0]
            question = task.prompt if isinstance(task.prompt, str) else task.prompt[0]["content"]
            said = [("user", question), ("assistant", first), ("user", AGAIN), ("assistant", second)]
            out.write(json.dumps({"messages": [{"role": role, "content": text} for role, text in said]}) + "\n")


def attempts(model: str, tasks: int = 100, n: int = 4) -> dict[str, float]:
    """Right answers at the first and at the second attempt, and how attempts change, on held-out sums."""
    phase = find("score").build(resolve_task(TASK), n=n, alpha=0.0, first_stage=0).phases[-1]  # pays r(y1), r(y2)
    settings = Settings(prompts=tasks, max_new_tokens=32, turns=2)
    step = Step(Clock(0, 1), load_policy(model, settings, "cpu"), settings)
    assert phase.draw.heldout is not None
    groups = phase.rollout.call(phase.draw.heldout(step), step)
    paid = [[r for r in trace.turn_scores["reward"] if not math.isnan(r)] for g in groups for trace in g.traces]
    pairs = [(own[0], own[1]) for own in paid if len(own) == 2]

    def share(*which: tuple[float, float]) -> float:
        return round(sum(pair in which for pair in pairs) / len(pairs), 4)

    return {
        "first": share((1.0, 0.0), (1.0, 1.0)),
        "second": share((0.0, 1.0), (1.0, 1.0)),
        "corrected": share((0.0, 1.0)),
        "spoilt": share((1.0, 0.0)),
    }


def taught(folder: Path, steps: int = 150) -> str:
    """The embedded model after SFT on conversations of two attempts."""
    conversations(folder / "two.jsonl")
    out = folder / "sft"
    burnish.train("sft", task=str(folder / "two.jsonl"), steps=steps, lr=1e-3, prompts=32, out=str(out), **QUIET)
    return str(out / "model")


def trained(start: str, folder: Path, seed: int, alpha: float, steps: int = 30) -> dict[str, float]:
    """The attempts after SCoRe."""
    out = folder / f"score-{seed}-{alpha:g}"
    options = {"prompts": 8, "n": 8, "max_new_tokens": 32, "lr": 1e-4, "first_stage": 8, "seed": seed}
    burnish.train("score", model=start, task=TASK, alpha=alpha, steps=steps, out=str(out), **options, **QUIET)
    return attempts(str(out / "model"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    with TemporaryDirectory() as place:
        folder = Path(place)
        start = taught(folder)
        found: dict[str, object] = {"script": "benchmarks/self_correction.py", "task": TASK, "before": attempts(start)}
        for alpha in (10.0, 0.0):
            found[f"alpha {alpha:g}"] = [trained(start, folder, seed, alpha) for seed in seeds]
            print(json.dumps(found, indent=1), flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
