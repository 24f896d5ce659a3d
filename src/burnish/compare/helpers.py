"""What some methods start from: a teacher, a reward model, a DPO policy. Where a comparison needs them, it trains them first.

Helpers are trained on the same task, from the same model, for a few steps; what they cost is in nobody's budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from burnish.compare.budget import Budget
from burnish.compare.job import Job
from burnish.methods.table import Entry
from burnish.run.config import method_fields

STEPS = 15
TRAINED_BY = {"teacher": "sft", "reward": "reward_model", "dpo": "dpo"}


def needs(entry: Entry) -> dict[str, str]:
    """The arguments that a method has no default for, and the kind of helper that each asks for."""
    found = {}
    for name, parameter in method_fields(entry).items():
        if parameter.default is parameter.empty:
            found[name] = "dpo" if "dpo" in name else "reward" if "reward" in name or "value" in name else "teacher"
    return found


def helper_model(folder: Path, kind: str, task: str) -> Path:
    """Where the model of a helper is."""
    return folder / "helpers" / f"{kind}-{plain(task)}" / "model"


def helper_jobs(folder: Path, wanted: Iterable[tuple[str, str]], flags: dict[str, object]) -> list[Job]:
    """The runs that make the helpers (kind, task) which are not there yet."""
    jobs = []
    for kind, task in sorted(set(wanted)):
        model = helper_model(folder, kind, task)
        if not model.is_dir():
            label = f"helper: {kind}"
            budget = Budget("steps", STEPS)
            jobs.append(
                Job(label, TRAINED_BY[kind], dict(flags), task, 0, budget, str(model.parent), 20, 1, 1, keep_model=True)
            )
    return jobs


def plain(text: str) -> str:
    """Text as part of a file's name."""
    return "".join(c if c.isalnum() or c in "._=+-" else "-" for c in text).strip("-")
