"""The runs of docs/curricula.md: a helper that rewrites prompts, then eva, SeRL, TeaMs-RL and Arena Learning.

    python benchmarks/curricula.py FOLDER        about 20 minutes on one core; prints the numbers of the page

The embedded model cannot rewrite English, so a copy of it is fine-tuned on rewriting lists to sort: five operations
lengthen a list, the others copy it. Accuracies are those of one reply at temperature 1 to 200 held-out tasks.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import burnish
from burnish.commands.loaded import load_policy
from burnish.rewards.judges import rewrites
from burnish.run.evaluate import evaluate
from burnish.step import Settings
from burnish.tasks.resolve import resolve_task
from burnish.tasks.table import source

LENGTHEN = {"deepen", "expand", "widen", "mix", "shift_in"}
LETTERS, NUMBERS = list("abcdefghijklmnopqrstuvwxyz"), [str(i) for i in range(10, 100)]
COMMON: dict[str, Any] = {"prompts": 8, "eval_tasks": 0, "save_every": 0, "device": "cpu"}


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


def accuracy(model: Any, task: str) -> float:
    """The share of right replies, one at temperature 1 to each of 200 held-out tasks."""
    settings = Settings()
    models = load_policy(str(model), settings, "cpu")
    return evaluate(models, resolve_task(task), settings, tasks=200, k=1, temperature=1.0).pass_at(1).mean


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {**COMMON, "steps": 300, "prompts": 24, "lr": 5e-4, "lr_schedule": "cosine"}
    data = helper_data(folder / "helper.jsonl")
    helper = burnish.train("sft", model="tiny", task=str(data), out=str(folder / "helper"), **told).model
    who = f"model({helper}, temperature=1, max_tokens=40)"
    evolve = f"eva(creator={who}, every=5, subset=0.5, variants=10, words=brief)"
    for name, more in (("grpo", {}), ("grpo with eva", {"draw": evolve})):
        out = str(folder / name.replace(" ", "-"))
        run = burnish.train("grpo", model="tiny", task="sort:1", reward=right, n=8, steps=40, out=out, **COMMON, **more)
        print(name, [accuracy(run.model, f"sort:{level}") for level in (1, 2, 3, 4)])
    taught: dict[str, Any] = {"executor": who, "teach": 25, "length": 3, "delta": 0.05, "words": "brief"}
    told = {**COMMON, "steps": 30, "prompts": 16}
    run = burnish.train("teams_rl", model="tiny", task="sort:1", out=str(folder / "teams"), **taught, **told)
    print("teams_rl", [run.metrics["not_equal"][i] for i in (0, 3, 24)])
    written: dict[str, Any] = {
        "writer": f"model({helper}, temperature=0.8, top_p=0.95, max_tokens=40)",
        "examples": 2,
        "similar": 0.8,
        "words": "brief",
        "steps": 30,
    }
    run = burnish.train("serl", model="tiny", task="sort:1", out=str(folder / "serl"), **written, **COMMON)
    print("serl", [[accuracy(model, f"sort:{level}") for level in (1, 2)] for model in ("tiny", run.model)])
    rival = burnish.train(
        "grpo", model="tiny", task="reverse", n=8, steps=15, out=str(folder / "rival"), **COMMON
    ).model
    fought: dict[str, Any] = {"rivals": str(rival), "stage": 6, "steps": 24}
    run = burnish.train("arena_learning", model="tiny", task="reverse", out=str(folder / "arena"), **fought, **COMMON)
    print("arena_learning", [accuracy(model, "reverse") for model in ("tiny", rival, run.model)])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
