"""Curricula over the sources of a mixture: numbers by hand, limits, and that they resume."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from conftest import SMALL, build_cast

from burnish.compose.curricula import drawn
from burnish.core.loop import loop
from burnish.draw.bandit import MovingValues, UpperBounds
from burnish.methods.table import find
from burnish.tasks.resolve import resolve_task
from burnish.tasks.table import source


def test_sec_follows_the_advantages() -> None:
    bandit = MovingValues(["a", "b"], alpha=0.5, temperature=1.0)
    bandit.values["a"] = 0.2
    bandit.heard("a", [0.5, 0.7])
    assert bandit.values == {"a": pytest.approx(0.4), "b": 0.0}
    assert bandit.shares()["a"] == pytest.approx(math.exp(0.4) / (math.exp(0.4) + 1))
    flat = MovingValues(["a", "b"], 1.0, 1e9)
    flat.heard("a", [3.0])
    assert flat.values["a"] == 3.0 and flat.shares()["a"] == pytest.approx(0.5)


def test_dump_adds_a_bound_for_what_was_seen_less() -> None:
    """Means .5 and .5 with 9 and 1 replies: the bounds are sqrt(2 ln 11 / 10) = .693 and sqrt(2 ln 11 / 2) = 1.549."""
    bandit = UpperBounds(["a", "b"], window=300, temperature=0.1)
    bandit.heard("a", [0.5] * 9)
    bandit.heard("b", [0.5])
    scores = bandit.scores()
    assert scores["a"] - 0.5 == pytest.approx(0.693, abs=1e-3) and scores["b"] - 0.5 == pytest.approx(1.549, abs=1e-3)
    assert bandit.shares()["b"] > 0.999
    short = UpperBounds(["a"], window=2, temperature=1.0)
    short.heard("a", [9.0, 1.0, 2.0])
    assert short.recent["a"] == [1.0, 2.0] and short.counts["a"] == 3


def test_a_curriculum_draws_for_any_method_and_resumes(small_model: Path) -> None:
    mixture = resolve_task("sort:1*1,sort:2*1")
    for text in ("sec", "dump(temperature=0.5)"):
        method = drawn(find("grpo").build(mixture, n=4), text, mixture)
        models = build_cast(method, small_model)
        reports = list(loop(method, models, SMALL, steps=3))
        shares = [reports[-1].metrics[f"draw/sort:{level}"] for level in (1, 2)]
        assert sum(shares) == pytest.approx(1.0)
        states = {name: item.state_dict() for name, item in method.stateful().items()}
        again = drawn(find("grpo").build(mixture, n=4), text, mixture)
        for name, item in again.stateful().items():
            item.load_state_dict(states[name])
        assert {name: item.state_dict() for name, item in again.stateful().items()} == states
        assert sum(states["bandit places"]["drawn"].values()) == 3 * SMALL.prompts


def test_what_cannot_be_drawn_is_refused() -> None:
    one = source("sort")
    with pytest.raises(ValueError, match="chooses between several sources, and task 'sort' is one"):
        drawn(find("grpo").build(one), "sec", one)
    mixture = resolve_task("sort:1*1,sort:2*1")
    with pytest.raises(ValueError, match="no curriculum 'sek'; did you mean sec"):
        drawn(find("grpo").build(mixture), "sek", mixture)
    with pytest.raises(ValueError, match="must be above 0"):
        drawn(find("grpo").build(mixture), "sec(alpha=0)", mixture)
    with pytest.raises(ValueError, match="dpo does not draw prompts"):
        drawn(find("dpo").build(mixture), "sec", mixture)
