"""SmolLM2-135M trained on real preferences by DPO, SimPO and KTO, and by TRL's DPOTrainer on the same rows.

    burnish models get smollm2
    OMP_NUM_THREADS=2 python benchmarks/preference_real.py test.jsonl.gz --work runs/real --trl-python VENV/bin/python
    python benchmarks/preference_real.py --draw

The data is a file of Anthropic/hh-rlhf (harmless-base/test.jsonl.gz; the hub has it). TRL runs in another Python, which
has trl and datasets. Every part is kept in --work, so that the same command continues after an interruption. --draw
makes the plot and the table of the stored results again.
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
OUT = ROOT / "benchmarks" / "results" / "preference_real.json"
SVG = ROOT / "docs" / "preference-real.svg"
MODEL, BETA, SEED, HELD_OUT, JUDGED = "smollm2", 0.1, 0, 0.3, 160  # JUDGED: how many held-out pairs are asked about
METHODS = ("dpo", "simpo", "kto")
LOGGED = ("reply/loss", "reply/margin", "reply/accuracy", "reply/chosen_logp", "reply/rejected_logp")
PROMPTS = (
    "My neighbour's dog barks all night. What can I do?",
    "How do I ask my boss for a day off?",
    "I feel sad today. Can you help me?",
    "What should I cook for six people on a small budget?",
    "Is it safe to mix bleach and vinegar?",
)


@dataclass(frozen=True)
class Setup:
    """What all runs share."""

    data: str
    steps: int
    pairs: int
    max_length: int
    lr: float

    @property
    def task(self) -> str:
        return f"{self.data},heldout={HELD_OUT}"

    @property
    def settings(self) -> Settings:
        return Settings(prompts=self.pairs, max_length=self.max_length, lr=self.lr)

    def command(self, method: str, out: Path) -> list[str]:
        """The words of `burnish train`."""
        numbers = ["--steps", str(self.steps), "--prompts", str(self.pairs), "--lr", str(self.lr), "--seed", str(SEED)]
        limits = ["--max-length", str(self.max_length), "--eval-every", "0", "--eval-tasks", "0", "--save-every", "0"]
        return ["train", method, "--model", MODEL, "--task", self.task, *numbers, *limits, "--out", str(out)]


class Rows:
    """The pairs as a run of burnish reads them: the training rows in the order of its steps, the held-out rows."""

    def __init__(self, setup: Setup) -> None:
        source = resolve_task(setup.task, None)
        self.method, self.setup = find("dpo").build(source), setup
        self.models = build({"policy": Role("frozen")}, resolve(MODEL), setup.settings, device="cpu")
        fit(source, Needs.of(self.method), self.models, "policy", setup.settings)
        self.heldout_size = source.size("heldout") or 0
        self.train_size = source.size("train") or 0

    def train(self) -> list[Group]:
        phase, steps = self.method.phases[0], self.setup.steps
        passes = [Step(Clock(i, steps, SEED), self.models, self.setup.settings) for i in range(steps)]
        return [group for step in passes for group in phase.rollout.call(phase.draw.call(step), step)]

    def heldout(self) -> list[Group]:
        settings = Settings(prompts=min(JUDGED, self.heldout_size), max_length=self.setup.max_length)
        step, phase = Step(Clock(0, 1, SEED), self.models, settings), self.method.phases[0]
        assert phase.draw.heldout is not None
        return phase.rollout.call(phase.draw.heldout(step), step)

    def texts(self) -> list[dict[str, Any]]:
        """The training rows as texts, which another trainer makes its tokens of, and the tokens of burnish."""
        tokenizer = self.models["policy"].chat.tokenizer
        found = []
        for group in self.train():
            prompt = group.traces[0].turns[0].tokens
            chosen, rejected = (trace.turns[1].tokens for trace in group.traces)
            row = {"prompt": tokenizer.decode(prompt)}
            row |= {"chosen": str(group.task.given["chosen"]), "rejected": str(group.task.given["rejected"])}
            tokens = {"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected}
            found.append(row | {name: ids.tolist() for name, ids in tokens.items()})
        return found


def trained(method: str, setup: Setup, work: Path) -> dict[str, Any]:
    """A run of the command line: its numbers step by step."""
    folder = work / method
    if not (folder / "model").is_dir():
        subprocess.run([sys.executable, "-m", "burnish.cli", *setup.command(method, folder), "--quiet"], check=True)
    with open_store(folder) as store:
        steps = store.metrics()
    return {name.removeprefix("reply/"): [step.get(name) for step in steps] for name in LOGGED}


def trained_by_trl(setup: Setup, work: Path, rows: Rows, python: str) -> dict[str, Any]:
    out, asked = work / "trl.json", work / "trl_work.json"
    if not out.is_file():
        numbers = {"steps": setup.steps, "batch": setup.pairs, "lr": setup.lr, "max_length": setup.max_length}
        asked.write_text(json.dumps({"model": str(resolve(MODEL)), "beta": BETA, **numbers, "rows": rows.texts()}))
        script = Path(__file__).parent / "sides" / "trl_dpo.py"
        subprocess.run([python, str(script), str(asked), str(out), str(work / "trl" / "model")], check=True)
    return json.loads(out.read_text())


def judged(folder: Path, groups: list[Group], kept: Path) -> dict[str, Any]:
    """What a model thinks of the held-out pairs: the log-prob of each preferred and each other reply; and its greedy
    replies to a few prompts.
    """
    if kept.is_file():
        return json.loads(kept.read_text())
    models = build({"policy": Role("frozen")}, folder, Settings(), device="cpu")
    traces = [trace for group in groups for trace in group.traces]
    found = models["policy"].streams(traces, [trace.by("demo") for trace in traces], {"logp"}, 4096)
    sums = [round(float(stream["logp"].nansum()), 4) for stream in found]
    said = burnish.generate(folder, PROMPTS, temperature=0, max_new_tokens=60, device="cpu")
    result = {"heldout": {"chosen": sums[0::2], "rejected": sums[1::2]}, "samples": said}
    kept.write_text(json.dumps(result))
    return result


def summary(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Accuracy and margin on the held-out pairs, with 95% bootstrap intervals over pairs.

    implicit  log pi/start of the preferred reply is more than that of the other; a tie counts one half
    by_token  the log-prob per token of the preferred reply is more than that of the other
    """
    start, mine, lengths = found["heldout"]["start"], found["heldout"][name], found["lengths"]
    gains = {side: [a - b for a, b in zip(mine[side], start[side], strict=True)] for side in mine}
    rates = {side: [a / n for a, n in zip(mine[side], lengths[side], strict=True)] for side in mine}
    margins = [BETA * (a - b) for a, b in zip(gains["chosen"], gains["rejected"], strict=True)]
    return {
        "implicit": interval([(m > 0) + 0.5 * (m == 0) for m in margins]),
        "by_token": interval([float(a > b) for a, b in zip(rates["chosen"], rates["rejected"], strict=True)]),
        "margin": interval(margins),
        "chosen": statistics.fmean(gains["chosen"]),
        "rejected": statistics.fmean(gains["rejected"]),
    }


def gaps(found: dict[str, Any]) -> list[float]:
    """The difference of the losses of burnish and TRL at each step."""
    return [abs(a - b) for a, b in zip(found["runs"]["dpo"]["loss"], found["runs"]["trl"]["loss"], strict=True)]


def table(found: dict[str, Any]) -> list[str]:
    """The held-out numbers, as a Markdown table."""
    lines = [
        "| | pairs right, implicit reward | pairs right, log-prob per token | margin | preferred replies | others |",
        "|---|---|---|---|---|---|",
    ]
    titles = {"start": "before", "dpo": "`dpo`", "trl": "TRL's DPOTrainer", "simpo": "`simpo`", "kto": "`kto`"}
    for name, title in titles.items():
        row = summary(name, found)
        implicit = "-" if name == "start" else str(row["implicit"])
        m = row["margin"]
        margin = "0" if name == "start" else f"{m.mean:.3f} [{m.low:.3f}, {m.high:.3f}]"
        moved = "0 | 0" if name == "start" else f"{row['chosen']:+.2f} | {row['rejected']:+.2f}"
        lines.append(f"| {title} | {implicit} | {row['by_token']} | {margin} | {moved} |")
    return lines


def drawn(found: dict[str, Any]) -> str:
    """The losses of burnish's and TRL's DPO over the steps."""
    lines = [
        Line(label, list(enumerate(found["runs"][name]["loss"], start=1)))
        for label, name in (("burnish dpo", "dpo"), ("TRL", "trl"))
    ]
    title = f"DPO of SmolLM2-135M: the loss at each step, largest difference {max(gaps(found)):.1e}"
    return standalone(line_chart(lines, title=title, x="step", y="loss"))


def measured(asked: argparse.Namespace) -> dict[str, Any]:
    setup = Setup(str(asked.data), asked.steps, asked.pairs, asked.max_length, asked.lr)
    asked.work.mkdir(parents=True, exist_ok=True)
    rows = Rows(setup)
    groups = rows.heldout()
    runs: dict[str, Any] = {name: trained(name, setup, asked.work) for name in METHODS}
    runs["trl"] = trained_by_trl(setup, asked.work, rows, asked.trl_python)
    folders = {"start": resolve(MODEL), **{name: asked.work / name / "model" for name in runs}}
    found = {name: judged(folder, groups, asked.work / f"{name}-judged.json") for name, folder in folders.items()}
    numbers = {"steps": setup.steps, "pairs": setup.pairs, "max_length": setup.max_length, "lr": setup.lr}
    return {
        "model": "SmolLM2-135M-Instruct",
        "data": "Anthropic/hh-rlhf, harmless-base/test.jsonl.gz",
        **numbers,
        "beta": BETA,
        "train": rows.train_size,
        "heldout_pairs": len(groups),
        "machine": {"cpu": platform.machine(), "torch": torch.__version__},
        "burnish": burnish.__version__,
        "runs": runs,
        "lengths": {
            side: [len(group.traces[i].turns[1]) for group in groups] for i, side in enumerate(("chosen", "rejected"))
        },
        "heldout": {name: one["heldout"] for name, one in found.items()},
        "prompts": PROMPTS,
        "samples": {name: one["samples"] for name, one in found.items()},
    }


def main() -> int:
    asked = _flags()
    if not asked.draw:
        asked.out.write_text(json.dumps(measured(asked), indent=1) + "\n")
    found = json.loads(asked.out.read_text())
    asked.svg.write_text(drawn(found))
    print("\n".join(table(found)))
    print(f"losses of burnish and TRL differ by at most {max(gaps(found)):.2e}")
    return 0


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="a file of Anthropic/hh-rlhf")
    parser.add_argument("--work", type=Path, default=Path("runs/preference-real"), help="where the runs are kept")
    parser.add_argument("--trl-python", default=sys.executable, help="the Python that has trl and datasets")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--pairs", type=int, default=8, help="pairs of a step")
    parser.add_argument("--max-length", type=int, default=128, help="longer rows are left out, in tokens")
    parser.add_argument("--lr", type=float, default=2e-5)
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
