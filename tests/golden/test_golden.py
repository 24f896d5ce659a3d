"""Golden curves: one run for each kind of unit, loss and gradient norm pinned. A change of numbers here is a change of
meaning: find out why before writing new ones (UPDATE_GOLDEN=1 pytest tests/golden writes them)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import SMALL, build_cast, build_method

from burnish.core.loop import loop
from burnish.core.method import Method, method
from burnish.core.roles import roles
from burnish.credit.group import group_relative
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.rollout.sample import sample
from burnish.score.verify import verify

CURVES = Path(__file__).parent / "curves.json"
STEPS = 4


def by_term(term) -> Method:
    from test_learn import TASK

    return method(
        draw=prompts(TASK),
        rollout=sample(4),
        score=verify(TASK),
        credit=group_relative(),
        learn=Learn(term),
        models=roles(),
    )


def build(unit: str, teacher: Path) -> Method:
    import test_learn

    return {
        "token": lambda: build_method("grpo", teacher),
        "pair": lambda: build_method("dpo", teacher),
        "sequence": lambda: by_term(test_learn.SEQUENCE),
        "group": lambda: by_term(test_learn.GROUP),
    }[unit]()


@pytest.mark.parametrize("unit", ["token", "sequence", "pair", "group"])
def test_golden_curve(unit: str, small_model: Path, other_model: Path) -> None:
    built = build(unit, other_model)
    term = built.phases[0].learn.terms[0].name
    reports = loop(built, build_cast(built, small_model), SMALL, steps=STEPS)
    curve = [[r.metrics[f"{term}/loss"], r.metrics["grad_norm"]] for r in reports]
    stored = json.loads(CURVES.read_text()) if CURVES.is_file() else {}
    if os.environ.get("UPDATE_GOLDEN"):
        CURVES.write_text(json.dumps({**stored, unit: curve}, indent=1) + "\n")
        return
    for found, wanted in zip(curve, stored[unit], strict=True):
        assert found == pytest.approx(wanted, rel=2e-3, abs=2e-5)
