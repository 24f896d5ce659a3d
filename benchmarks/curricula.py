"""The runs of docs/curricula.md: a helper that rewrites prompts, then eva, SeRL, TeaMs-RL and Arena Learning.

    python benchmarks/curricula.py FOLDER                  about 4 minutes of one core
    python benchmarks/curricula.py FOLDER --small          fewer steps, after the same helper: about 3 minutes
    python benchmarks/curricula.py FOLDER eva --small      one part, after the part `helper`

Each part writes its numbers into results/curricula.json when it ends.

The embedded model cannot rewrite English, so a copy of it is fine-tuned on rewriting lists to sort: five operations
lengthen a list, the others copy it. Accuracies are those of one reply at temperature 1 to each held-out task.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import burnish
from burnish.commands.loaded import load_policy
from burnish.core.step import Settings
from burnish.evals.evaluate import evaluate
from burnish.judges import rewrites
from burnish.tasks.resolve import resolve_task
from burnish.tasks.table import source

LENGTHEN = {"deepen", "expand", "widen", "mix", "shift_in"}
LETTERS, NUMBERS = list("abcdefghijklmnopqrstuvwxyz"), [str(i) for i in range(10, 100)]
RESULTS = Path(__file__).parent / "results" / "curricula.json"
COMMON: dict[str, Any] = {"prompts": 8, "eval_tasks": 0, "save_every": 0, "device": "cpu"}


@dataclass(frozen=True)
class Sizes:
    """Steps of each run, the rows of a step of the helper's training, and the held-out tasks of an accuracy."""

    helper: int = 300
    rows: int = 24
    eva: int = 40
    every: int = 5
    teach: int = 25
    serl: int = 30
    rival: int = 15
    stage: int = 6
    tasks: int = 200


SMALL = Sizes(eva=12, every=3, teach=12, serl=8, rival=6, stage=3, tasks=60)  # the helper needs all of its steps


def right(prompts: list[Any], completions: list[str], **_: Any) -> list[float]:
    """1 where a reply sorts the list of its own prompt: also of a prompt that nobody wrote before."""
    scores = []
    for prompt, reply in zip(prompts, completions, strict=True):
        asked = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        way, _, items = asked.partition(":")
        wanted = sorted(items.split(), reverse="down" in way)
        scores.append(float(bool(wanted) and reply.rpartition("answer:")[2].split() == wanted))
    return scores


def _asked(dice: random.Random, size: int) -> tuple[str, list[str], list[str]]:
    pool = dice.choice((LETTERS, NUMBERS))
    items = dice.sample(pool, size)
    return f"Sort {dice.choice(('up', 'down'))}: {' '.join(items)}", items, pool


def helper_data(path: Path) -> Path:
    """Questions to a rewriting model with their answers, and sorted lists."""
    dice, rows = random.Random(1), []
    operations = list({o.name: o for o in (*rewrites.IN_DEPTH, *rewrites.IN_BREADTH, *rewrites.SIX)}.values())
    for _ in range(6000):
        text, items, pool = _asked(dice, dice.choice((4, 5, 6, 7)))
        one = dice.choice(operations)
        longer = f"{text} {dice.choice([x for x in pool if x not in items])}"
        asked = rewrites.rewrite_question(rewrites.REWRITE_BRIEF, text, one).text
        rows.append({"prompt": asked, "completion": longer if one.name in LENGTHEN else text})
    for _ in range(3000):
        shown = [_asked(dice, 4)[0] for _ in range(2)]
        asked = rewrites.more_question(rewrites.MORE_BRIEF, shown, 0).text
        rows.append({"prompt": asked, "completion": _asked(dice, 4)[0]})
    for task in (source(f"sort:{level}").task("train", i) for level in (1, 2) for i in range(1500)):
        rows.append({"prompt": task.prompt[0]["content"], "completion": task.given["demo"]})  # type: ignore[index]
    dice.shuffle(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def accuracy(model: Any, task: str, sizes: Sizes) -> float:
    """The share of right replies, one at temperature 1 to each held-out task."""
    settings = Settings()
    models = load_policy(str(model), settings, "cpu")
    return evaluate(models, resolve_task(task), settings, tasks=sizes.tasks, k=1, temperature=1.0).pass_at(1).mean


def train_helper(folder: Path, sizes: Sizes) -> dict[str, Any]:
    """A copy of the embedded model that rewrites lists, fine-tuned on the synthetic rows."""
    told: dict[str, Any] = {**COMMON, "steps": sizes.helper, "prompts": sizes.rows, "lr": 5e-4}
    data = helper_data(folder / "helper.jsonl")
    run = burnish.train("sft", model="tiny", task=str(data), out=str(folder / "helper"), lr_schedule="cosine", **told)
    return {"loss": [run.metrics["sft/loss"][0], run.metrics["sft/loss"][-1]]}


def run_eva(folder: Path, sizes: Sizes) -> dict[str, Any]:
    """GRPO on lists of 4, with and without prompts that the helper lengthens."""
    who = f"model({folder / 'helper' / 'model'}, temperature=1, max_tokens=40)"
    evolve = f"eva(creator={who}, every={sizes.every}, subset=0.5, variants=10, words=brief)"
    found: dict[str, Any] = {"tiny": [accuracy("tiny", f"sort:{level}", sizes) for level in (1, 2, 3, 4)]}
    for name, more in (("grpo", {}), ("grpo with eva", {"draw": evolve})):
        out = str(folder / name.replace(" ", "-"))
        told: dict[str, Any] = {**COMMON, "n": 8, "steps": sizes.eva, **more}
        run = burnish.train("grpo", model="tiny", task="sort:1", reward=right, out=out, **told)
        rewards = [one for one in run.metrics["reward"] if one is not None]
        heldout = [accuracy(run.model, f"sort:{level}", sizes) for level in (1, 2, 3, 4)]
        found[name] = {"sort:1 to sort:4": heldout, "reward, last five steps": sum(rewards[-5:]) / len(rewards[-5:])}
    return found


def run_teams(folder: Path, sizes: Sizes) -> dict[str, Any]:
    """The instructor learns which operations change a list."""
    who = f"model({folder / 'helper' / 'model'}, temperature=1, max_tokens=40)"
    taught: dict[str, Any] = {"executor": who, "teach": sizes.teach, "length": 3, "delta": 0.05, "words": "brief"}
    told = {**COMMON, "steps": sizes.teach + 5, "prompts": 16}
    run = burnish.train("teams_rl", model="tiny", task="sort:1", out=str(folder / "teams"), **taught, **told)
    return {"not_equal": run.metrics["not_equal"][: sizes.teach]}


def run_serl(folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Prompts by the helper, rewards by the majority: accuracies on sort:1 and sort:2 before and after."""
    written: dict[str, Any] = {
        "writer": f"model({folder / 'helper' / 'model'}, temperature=0.8, top_p=0.95, max_tokens=40)",
        "examples": 2,
        "similar": 0.8,
        "words": "brief",
        "steps": sizes.serl,
    }
    run = burnish.train("serl", model="tiny", task="sort:1", out=str(folder / "serl"), **written, **COMMON)
    pairs = {"before": "tiny", "after": run.model}
    return {when: [accuracy(model, f"sort:{level}", sizes) for level in (1, 2)] for when, model in pairs.items()}


def run_arena(folder: Path, sizes: Sizes) -> dict[str, Any]:
    """One round of battles with a rival on reversal."""
    told: dict[str, Any] = {**COMMON, "n": 8, "steps": sizes.rival}
    rival = burnish.train("grpo", model="tiny", task="reverse", out=str(folder / "rival"), **told).model
    fought: dict[str, Any] = {**COMMON, "rivals": str(rival), "stage": sizes.stage, "steps": 4 * sizes.stage}
    run = burnish.train("arena_learning", model="tiny", task="reverse", out=str(folder / "arena"), **fought)
    return {
        name: accuracy(model, "reverse", sizes)
        for name, model in (("tiny", "tiny"), ("rival", rival), ("after", run.model))
    }


PARTS = {"helper": train_helper, "eva": run_eva, "teams_rl": run_teams, "serl": run_serl, "arena_learning": run_arena}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; by default all")
    parser.add_argument("--small", action="store_true", help="fewer steps: about 3 minutes of one core")
    given = parser.parse_args()
    if unknown := [name for name in given.parts if name not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    given.folder.mkdir(parents=True, exist_ok=True)
    sizes = SMALL if given.small else Sizes()
    setting = "small" if given.small else "full"
    for name in given.parts or PARTS:
        began = time.process_time()
        found = PARTS[name](given.folder, sizes)
        kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"script": "benchmarks/curricula.py"}
        entry = kept.setdefault(setting, {"sizes": asdict(sizes), "seed": 0, "parts": {}})
        entry["parts"][name] = {**found, "cpu_seconds": round(time.process_time() - began, 1)}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
        print(name, json.dumps(entry["parts"][name]))


if __name__ == "__main__":
    main()
