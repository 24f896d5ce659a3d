"""What is to be compared: candidates, seeds, a task, a budget; and the runs that this makes."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.compare.budget import Budget
from burnish.compare.helpers import plain
from burnish.compare.job import Job
from burnish.methods.table import find
from burnish.run.config import configure
from burnish.swap import swapped
from burnish.tasks.resolve import resolve_task


@dataclass(frozen=True)
class Candidate:
    """One row of the table: a method with some of its flags changed. `label` is what it is called."""

    label: str
    method: str
    flags: dict[str, Any] = field(default_factory=dict)
    change: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Candidates that differ in what they are, and in nothing else."""

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
        """Every run: first all candidates with the first seed, then with the second, so that an early stop compares, too."""
        return [
            Job(
                one.label, one.method, {**self.shared, **one.flags}, self.task, seed, self.budget, self._folder(one, seed),
                self.tasks, self.replies, self.points, self.keep_models, one.change,
            )
            for seed in range(self.seeds)
            for one in self.candidates
        ]  # fmt: skip

    def check(self) -> None:
        """Refuse what cannot work before anything runs."""
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
            changed = [name for name in now if name not in ("out", "keep_model") and before.get(name) != now[name]]
            if changed:
                raise ValueError(
                    f"{self.out} holds runs with another {changed[0]} ({before.get(changed[0])}, not {now[changed[0]]}); "
                    "ask for the same again to go on with them, or choose another --out"
                )

    def _folder(self, one: Candidate, seed: int) -> str:
        return str(self.out / "runs" / f"{plain(one.label)}-seed{seed}")


def candidate(words: str) -> Candidate:
    """A candidate from words: grpo, grpo(n=4, lr=3e-5), my_method.py:mine(n=4). Values are literals or plain words."""
    found = re.fullmatch(r"\s*([^()]+?)\s*(?:\((.*)\))?\s*", words, re.DOTALL)
    if not found:
        raise ValueError(f"{words!r} is not a method; write NAME or NAME(flag=value, ...), in quotes: 'grpo(n=4)'")
    name, inside = found[1], found[2]
    try:
        call = ast.parse(f"f({inside or ''})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args:
            raise ValueError
        flags = {str(item.arg).replace("-", "_"): value(item.value) for item in call.keywords}
    except (SyntaxError, ValueError):
        raise ValueError(
            f"the flags in {words!r} are not flag=value, ...; write for example '{name}(n=4, lr=3e-5)'"
        ) from None
    said = ", ".join(f"{key}={shown(what)}" for key, what in flags.items())
    return Candidate(f"{name}({said})" if said else name, name, flags)


def value(node: ast.expr) -> Any:
    """A literal, or a plain word as text; nothing is evaluated."""
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def shown(what: Any) -> str:
    """A flag's value as people write it."""
    return f"{what:g}" if isinstance(what, float) else str(what)


def default_folder(kind: str, task: str, names: Sequence[str]) -> Path:
    """The same command makes the same folder, so that asking again goes on."""
    return Path("runs") / plain(f"{kind}-{task}-{'-'.join(names)}")[:120]
