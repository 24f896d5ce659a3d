"""Train the models that some methods need first: a teacher, a reward model, a DPO policy.

Helper models are trained on the same task, from the same model, for a few steps. Their cost is in no budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from burnish.compare.budget import Budget
from burnish.compare.job import Job
from burnish.config.options import method_fields
from burnish.methods.table import Entry

STEPS = 15
TRAINED_BY = {"teacher": "sft", "reward": "reward_model", "dpo": "dpo"}


def needs(entry: Entry) -> dict[str, str]:
    """The kind of helper model for each of a method's options without a default."""
    kinds = {}
    for name, parameter in method_fields(entry).items():
        if parameter.default is parameter.empty:
            kinds[name] = "dpo" if "dpo" in name else "reward" if "reward" in name or "value" in name else "teacher"
    return kinds


def helper_model(folder: Path, kind: str, task: str) -> Path:
    """The path of a helper model."""
    return folder / "helpers" / f"{kind}-{plain(task)}" / "model"


def helper_jobs(folder: Path, wanted: Iterable[tuple[str, str]], flags: dict[str, object]) -> list[Job]:
    """The jobs that train the helper models (kind, task) that do not exist yet."""
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
    """Text as part of a file name."""
    return "".join(c if c.isalnum() or c in "._=+-" else "-" for c in text).strip("-")
