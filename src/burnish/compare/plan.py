"""The plan of a comparison: candidates, seeds, task and budget, and the jobs that follow from them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from burnish.compare.budget import Budget
from burnish.compare.helpers import plain
from burnish.compare.job import Job
from burnish.compare.measure import REPLIES
from burnish.compose.swap import swapped
from burnish.config.options import configure
from burnish.methods.table import find
from burnish.models.known_models import resolve
from burnish.run.plan import default_lr
from burnish.tasks.resolve import resolve_task


@dataclass(frozen=True)
class Candidate:
    """One row of the table: a method with some flags changed. `label` is its name in the table."""

    label: str
    method: str
    flags: dict[str, Any] = field(default_factory=dict)
    change: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ComparisonPlan:
    """Candidates that are run with the same seeds, task, budget and shared flags."""

    candidates: tuple[Candidate, ...]
    task: str
    seeds: int
    budget: Budget
    out: Path
    shared: dict[str, Any] = field(default_factory=dict)
    tasks: int = 200
    replies: int = 8
    points: int = 8
    keep_models: bool = False

    def jobs(self) -> list[Job]:
        """All jobs, seed by seed, so that an early stop leaves comparable results."""
        return [self._job(one, seed) for seed in range(self.seeds) for one in self.candidates]

    def _job(self, one: Candidate, seed: int) -> Job:
        return Job(
            label=one.label,
            method=one.method,
            flags={**self.shared, **one.flags},
            task=self.task,
            seed=seed,
            budget=self.budget,
            out=self._folder(one, seed),
            tasks=self.tasks,
            replies=self.replies,
            points=self.points,
            keep_model=self.keep_models,
            change=one.change,
            measure=REPLIES if len({other.method for other in self.candidates}) > 1 else "auto",
        )

    def check(self) -> None:
        """Raise ValueError for a plan that cannot work, before anything runs."""
        for name, least in (("seeds", 1), ("tasks", 2), ("replies", 1), ("points", 1)):
            if getattr(self, name) < least:
                flag = {"tasks": "eval-tasks"}.get(name, name)
                raise ValueError(f"--{flag} is {getattr(self, name)}; it must be at least {least}")
        labels = [one.label for one in self.candidates]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"{label!r} is named twice; two candidates must differ, for example {label}(lr=3e-5)")
        source = resolve_task(self.task, self.shared.get("reward"))
        for one in self.candidates:
            entry = find(one.method)
            config = configure(entry, one.method, {**self.shared, **one.flags})
            built = entry.build(source, **config.arguments)
            if config.options.swap:
                swapped(built, config.options.swap)
        self._check_folder()

    def _check_folder(self) -> None:
        for job in self.jobs():
            file = Path(job.out) / "job.json"
            if not file.is_file():
                continue
            before, now = json.loads(file.read_text()), json.loads(json.dumps(job.to_json()))
            was = {"measure": REPLIES, "learns": "", "record": [], "probes": [], **before}  # of folders without these
            changed = [name for name in now if name not in ("out", "keep_model") and was.get(name) != now[name]]
            if changed:
                raise ValueError(
                    f"{self.out} holds runs with another {changed[0]} ({before.get(changed[0])}, "
                    f"not {now[changed[0]]}); use the same options to resume them, or choose another --out"
                )

    def _folder(self, one: Candidate, seed: int) -> str:
        return str(self.out / "runs" / f"{plain(one.label)}-seed{seed}")


def candidate(words: str) -> Candidate:
    """Parse a candidate: grpo, grpo(n=4, lr=3e-5), my_method.py:mine(n=4). Values are literals or plain words."""
    match = re.fullmatch(r"\s*([^()]+?)\s*(?:\((.*)\))?\s*", words, re.DOTALL)
    if not match:
        raise ValueError(f"{words!r} is not a method; write NAME or NAME(flag=value, ...), in quotes: 'grpo(n=4)'")
    name, arguments = match[1], match[2]
    try:
        call = ast.parse(f"f({arguments or ''})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args:
            raise ValueError
        flags = {str(item.arg).replace("-", "_"): value(item.value) for item in call.keywords}
    except (SyntaxError, ValueError):
        raise ValueError(
            f"the flags in {words!r} are not flag=value, ...; write for example '{name}(n=4, lr=3e-5)'"
        ) from None
    text = ", ".join(f"{key}={shown(flag)}" for key, flag in flags.items())
    return Candidate(f"{name}({text})" if text else name, name, flags)


def settings_of(one: Candidate, shared: Mapping[str, object], task: str) -> dict[str, object]:
    """All that a candidate is run with: its own flags, the shared ones, and the defaults."""
    entry = find(one.method)
    config = configure(entry, one.method, {**shared, **one.flags})
    options = config.options
    if options.lr is None:
        share = entry.build(resolve_task(task, options.reward), **config.arguments).lr_share
        options = replace(options, lr=default_lr(resolve(options.model), options.adapters()) * share)
    return replace(config, options=options).to_dict()


def value(node: ast.expr) -> object:
    """A literal, or a plain word as text; nothing is evaluated."""
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def shown(flag: object) -> str:
    """A flag's value as text."""
    return f"{flag:g}" if isinstance(flag, float) else str(flag)


def default_folder(kind: str, task: str, names: Sequence[str]) -> Path:
    """The default folder of a command; the same command has the same folder, so that it resumes."""
    return Path("runs") / plain(f"{kind}-{task}-{'-'.join(names)}")[:120]
