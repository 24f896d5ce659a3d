"""Reward models of real preferences: burnish's `reward_model` beside TRL's RewardTrainer on the same tokens.

    OMP_NUM_THREADS=2 python benchmarks/reward_model_real.py test.jsonl.gz --trl-python VENV/bin/python
    python benchmarks/reward_model_real.py --draw

Both begin with the same weights, head included, and see the same rows in the same order; a seed gives the head and
the order. The data is a file of Anthropic/hh-rlhf (harmless-base/test.jsonl.gz; the hub has it). TRL runs in another
Python, which has trl and datasets. Both models are asked about the held-out pairs by transformers, one row at a time.
Every part is kept in --work, so that the same command continues after an interruption. --draw makes plot and table
again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import burnish
from burnish.core.roles import Role
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group
from burnish.evals.evaluate import interval
from burnish.methods.table import find
from burnish.models.build import build
from burnish.models.known_models import resolve
from burnish.report.charts import Line, line_chart, standalone
from burnish.run.lengths import Needs, fit
from burnish.store.reader import open_store
from burnish.tasks.resolve import resolve_task

ROOT = Path(__file__).parent.parent
OUT = ROOT / "benchmarks" / "results" / "reward_model_real.json"
SVG = ROOT / "docs" / "reward-model-real.svg"
HELD_OUT = 0.3


@dataclass(frozen=True)
class Setup:
    """What the two runs of a seed share."""

    data: str
    model: str
    steps: int
    pairs: int
    max_length: int
    lr: float
    judged: int
    seed: int

    @property
    def task(self) -> str:
        return f"{self.data},heldout={HELD_OUT}"

    @property
    def settings(self) -> Settings:
        return Settings(prompts=self.pairs, max_length=self.max_length, lr=self.lr)

    def command(self, start: Path, out: Path) -> list[str]:
        """The words of `burnish train`."""
        numbers = ["--steps", str(self.steps), "--prompts", str(self.pairs), "--lr", str(self.lr)]
        limits = ["--max-length", str(self.max_length), "--eval-every", "0", "--eval-tasks", "0", "--save-every", "0"]
        named = ["--model", str(start), "--task", self.task, "--seed", str(self.seed), "--out", str(out)]
        return ["train", "reward_model", *named, *numbers, *limits, "--device", "cpu"]


def started(setup: Setup, folder: Path) -> Path:
    """A directory with the model and a head drawn by the seed."""
    place = folder / "start"
    if not (place / "config.json").is_file():
        base = resolve(setup.model)
        tokenizer = AutoTokenizer.from_pretrained(base)
        torch.manual_seed(setup.seed)
        model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, dtype=torch.float32)
        torch.nn.init.normal_(model.score.weight, std=0.01)
        if tokenizer.pad_token_id is None or tokenizer.pad_token_id == tokenizer.eos_token_id:
            unused = next(
                i for i in range(len(tokenizer)) if i in tokenizer.all_special_ids and i != tokenizer.eos_token_id
            )
            tokenizer.pad_token = tokenizer.convert_ids_to_tokens(unused)
        model.config.pad_token_id = tokenizer.pad_token_id
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)
    return place


def read_pairs(setup: Setup, start: Path) -> tuple[list[Group], list[Group]]:
    """The training pairs in the order of a run's steps, and the held-out ones."""
    source = resolve_task(setup.task, None)
    method = find("reward_model").build(source)
    models = build({"rm": Role("frozen", outputs=1)}, start, setup.settings, device="cpu")
    fit(source, Needs.of(method), models, "rm", setup.settings)
    phase = method.phases[0]
    passes = [Step(Clock(i, setup.steps, setup.seed), models, setup.settings) for i in range(setup.steps)]
    trained = [group for step in passes for group in phase.rollout.call(phase.draw.call(step), step)]
    asked = Settings(prompts=min(setup.judged, source.size("heldout") or 0), max_length=setup.max_length)
    step = Step(Clock(0, 1, setup.seed), models, asked)
    assert phase.draw.heldout is not None
    return trained, phase.rollout.call(phase.draw.heldout(step), step)


def ids_of(group: Group) -> tuple[list[int], list[int]]:
    """The tokens of the preferred and of the other conversation."""
    one, other = (torch.cat([turn.tokens for turn in trace.turns]).tolist() for trace in group.traces)
    return one, other


def trained_by_burnish(setup: Setup, start: Path, folder: Path) -> list[float]:
    """The losses of a run of the command line."""
    out = folder / "burnish"
    if not (out / "model").is_dir():
        words = [sys.executable, "-m", "burnish.cli", *setup.command(start, out), "--quiet"]
        subprocess.run(words, check=True)
    with open_store(out) as store:
        return [float(step["end/loss"]) for step in store.metrics()]


def trained_by_trl(setup: Setup, start: Path, folder: Path, groups: list[Group], python: str) -> dict[str, Any]:
    out, asked = folder / "trl.json", folder / "trl_work.json"
    if not out.is_file():
        rows = [dict(zip(("chosen_ids", "rejected_ids"), ids_of(group), strict=True)) for group in groups]
        numbers = {"steps": setup.steps, "batch": setup.pairs, "lr": setup.lr}
        asked.write_text(json.dumps({"model": str(start), **numbers, "rows": rows}))
        script = Path(__file__).parent / "sides" / "trl_reward.py"
        subprocess.run([python, str(script), str(asked), str(out), str(folder / "trl" / "model")], check=True)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@torch.no_grad()
def scores(folder: Path, groups: list[Group]) -> dict[str, list[float]]:
    """The score of the last token of each held-out conversation, by transformers."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, dtype=torch.float32).eval()
    found: dict[str, list[float]] = {"chosen": [], "rejected": []}
    for group in groups:
        for side, ids in zip(found, ids_of(group), strict=True):
            states = model.base_model(torch.tensor([ids])).last_hidden_state
            found[side].append(round(float(model.score(states)[0, -1, 0]), 5))
    return found


def one_seed(setup: Setup, work: Path, python: str) -> dict[str, Any]:
    folder = work / f"seed-{setup.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "found.json"
    if not kept.is_file():
        start = started(setup, folder)
        training, heldout = read_pairs(setup, start)
        loss = trained_by_burnish(setup, start, folder)
        other = trained_by_trl(setup, start, folder, training, python)
        judged = {name: scores(folder / name / "model", heldout) for name in ("burnish", "trl")}
        judged["start"] = scores(start, heldout)
        lengths = {side: [len(ids_of(g)[i]) for g in heldout] for i, side in enumerate(("chosen", "rejected"))}
        losses = {"burnish": loss, "trl": other["loss"]}
        kept.write_text(
            json.dumps({"loss": losses, "scores": judged, "lengths": lengths, "versions": other["versions"]})
        )
    found: dict[str, Any] = json.loads(kept.read_text())
    return {"seed": setup.seed, **found}


def right(sides: dict[str, list[float]]) -> list[float]:
    """1 for each pair in the right order, one half for a tie."""
    return [(a > b) + 0.5 * (a == b) for a, b in zip(sides["chosen"], sides["rejected"], strict=True)]


def gap(one: dict[str, Any]) -> float:
    """The largest difference of the losses of burnish and TRL at a step of a seed."""
    return max(abs(a - b) for a, b in zip(one["loss"]["burnish"], one["loss"]["trl"], strict=True))


def table(found: dict[str, Any]) -> list[str]:
    """The held-out pairs in the right order, as a Markdown table: 95% intervals over pairs."""
    lines = ["| seed | before | burnish | TRL's RewardTrainer | the longer one | largest difference of losses |"]
    lines.append("|---|---|---|---|---|---|")
    for one in found["seeds"]:
        cells = [str(interval(right(one["scores"][name]))) for name in ("start", "burnish", "trl")]
        lines.append(f"| {one['seed']} | {' | '.join(cells)} | {interval(right(one['lengths']))} | {gap(one):.1e} |")
    means = [
        statistics.fmean(statistics.fmean(right(one["scores"][name])) for one in found["seeds"])
        for name in ("start", "burnish", "trl")
    ]
    lines.append(f"| mean | {' | '.join(f'{mean:.1%}' for mean in means)} | | |")
    return lines


def drawn(found: dict[str, Any]) -> str:
    first = found["seeds"][0]
    lines = [
        Line(label, list(enumerate(first["loss"][name], start=1)))
        for label, name in (("burnish", "burnish"), ("TRL", "trl"))
    ]
    title = f"A reward model of hh pairs, seed {first['seed']}: largest difference of the losses {gap(first):.1e}"
    return standalone(line_chart(lines, title=title, x="step", y="loss"))


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    numbers = {name: getattr(asked, name) for name in ("model", "steps", "pairs", "max_length", "lr", "judged")}
    setups = [Setup(data=str(asked.data), seed=seed, **numbers) for seed in range(asked.seeds)]
    found = [one_seed(setup, asked.work, asked.trl_python) for setup in setups]
    return {
        "data": "Anthropic/hh-rlhf, harmless-base/test.jsonl.gz",
        **numbers,
        "heldout_pairs": len(found[0]["lengths"]["chosen"]),
        "machine": {"cpu": platform.machine(), "torch": torch.__version__},
        "burnish": burnish.__version__,
        "seeds": found,
    }


def main() -> int:
    asked = _flags()
    if not asked.draw:
        asked.out.write_text(json.dumps(measured(asked)) + "\n")
    found = json.loads(asked.out.read_text())
    asked.svg.write_text(drawn(found))
    print("\n".join(table(found)))
    return 0


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="a file of Anthropic/hh-rlhf")
    parser.add_argument("--work", type=Path, default=Path("runs/reward-model-real"), help="where the runs are kept")
    parser.add_argument("--trl-python", default=sys.executable, help="the Python that has trl and datasets")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=8, help="pairs of a step")
    parser.add_argument("--max-length", type=int, default=256, help="longer rows are left out, in tokens")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--judged", type=int, default=300, help="held-out pairs that are asked about")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--svg", type=Path, default=SVG)
    parser.add_argument("--draw", action="store_true", help="draw the stored results instead of measuring")
    asked = parser.parse_args()
    if not asked.draw and asked.data is None:
        parser.error("name the file with the preferences, or give --draw")
    return asked


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
