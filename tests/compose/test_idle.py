"""A reference that only a term of coefficient 0 reads is not loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import burnish
from burnish.compose.idle import without_idle_models
from burnish.core.roles import frozen
from burnish.core.schedules import linear
from burnish.learn.learn import plan_of
from burnish.methods.table import METHODS
from burnish.tasks.resolve import resolve_task


def built(name: str, **options: object) -> object:
    return METHODS[name].build(resolve_task("add"), **options)


def test_grpo_without_a_penalty_has_no_reference() -> None:
    method = without_idle_models(built("grpo", beta=0.0))  # type: ignore[arg-type]
    assert set(method.models) == {"policy"}
    assert [term.name for term in plan_of(method.phases[0]).terms] == ["pg"]
    assert all(atom.name != "streams" and "stream:ref" not in atom.writes for atom in method.phases[0].credit)


@pytest.mark.parametrize("beta", [0.04, linear(0.0, 0.1)])
def test_a_penalty_keeps_its_reference(beta: object) -> None:
    method = built("grpo", beta=beta)
    assert without_idle_models(method) is method  # type: ignore[arg-type, comparison-overlap]


def test_a_reference_in_the_loss_itself_stays() -> None:
    for name in ("dpo", "kto"):
        method = built(name)
        assert without_idle_models(method) is method  # type: ignore[arg-type, comparison-overlap]


def test_the_gradient_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for kept in (False, True):
        if kept:
            monkeypatch.setattr("burnish.compose.passes.without_idle_models", lambda method: method)
        result = burnish.train(
            "grpo", model="tiny", task="add:1", steps=2, prompts=2, n=4, beta=0.0, max_new_tokens=4,
            eval_tasks=0, eval_every=0, record=0, out=str(tmp_path / str(kept)),
        )  # fmt: skip
        found.append([row["grad_norm"] for row in result.metrics])
        assert ("kl/loss" in result.metrics[0]) == kept
    assert found[0] == found[1]


def test_a_model_that_no_part_reads_stays() -> None:
    method = built("grpo", beta=0.0)
    models = {**method.models, "start": frozen("policy")}  # type: ignore[attr-defined]
    found = without_idle_models(replace(method, models=models))  # type: ignore[type-var]
    assert set(found.models) == {"policy", "start"}
