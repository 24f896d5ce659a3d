"""A method's product may have any name: metrics that name no model are about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import SMALL, build_cast, build_method
from guards import guards

from burnish.core.method import Method, method
from burnish.core.parts import chain
from burnish.core.roles import roles
from burnish.core.step import Settings
from burnish.credit.group import group_relative
from burnish.credit.streams import behaviour
from burnish.draw.tasks import prompts
from burnish.evals.heldout import held_out
from burnish.learn.learn import Learn
from burnish.learn.terms import pg_clip
from burnish.rollout.sample import sample
from burnish.run.pipeline import loop_as_set
from burnish.score.verify import verify
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded

pytestmark = guards("report", "core/roles.py")

TASK = rewarded(source("sort"), lambda completions: [float(len(text) % 2) for text in completions])


def grpo(name: str) -> Method:
    """GRPO without a KL, its policy called `name`."""
    return method(
        draw=prompts(TASK),
        rollout=sample(4, who=name),
        score=verify(TASK, author=name, reader=name),
        credit=chain(group_relative(), behaviour(name)),
        learn=Learn(replace(pg_clip(0.2), trainee=name, on=name)),
        models=roles(name),
        product=name,
    )


@pytest.mark.parametrize("changed", [{}, {"lag": 1}, {"chunk": 4}], ids=["plain", "lag", "chunk"])
def test_a_policy_by_another_name_reports_the_same(changed: dict[str, int], small_model: Path) -> None:
    settings: Settings = replace(SMALL, **changed)  # type: ignore[arg-type]
    found = []
    for name in ("policy", "student"):
        built = grpo(name)
        reports = loop_as_set(built, build_cast(built, small_model, settings), settings, steps=3)
        found.append([report.metrics for report in reports])
    assert found[0] == found[1]
    names = {metric for metrics in found[0] for metric in metrics}
    assert {"reward", "length", "grad_norm", "mismatch/logp"} <= names and ("staleness" in names) == bool(changed)


def test_a_reward_model_is_its_methods_product(small_model: Path, other_model: Path) -> None:
    built = build_method("reward_model", other_model)
    assert not built.generates and grpo("student").generates
    models = build_cast(built, small_model)
    (report,) = loop_as_set(built, models, SMALL, steps=1)
    assert "grad_norm" in report.metrics and not any(name.endswith("/grad_norm") for name in report.metrics)


def test_a_policy_by_another_name_is_evaluated(small_model: Path) -> None:
    built = grpo("student")
    assert held_out(built, build_cast(built, small_model), TASK, SMALL, 2).name == "accuracy"
