"""Refilling: a filtered batch is filled up with other tasks, the same ones in a rerun, and no more often than asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import SMALL, build_cast
from test_learn import TASK, same_gradient

from burnish.core.method import Method
from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Clock, Group
from burnish.methods.surrogates import dapo
from burnish.select.filters import mixed
from burnish.select.refill import refilled


def half(groups: list[Group], step: Step) -> list[Group]:
    """A filter that keeps the first half of what it is shown, rounded down, but one group of a single one."""
    return groups[: max(1, len(groups) // 2)]


START = Clock(0, 10)
HALF = Part(name="half", call=half, writes=frozenset({"tag:mixed"}))


def walked(times: int, models, built: Method, clock: Clock = START) -> tuple[list[Group], Step]:
    phase = built.phases[0]
    step = Step(clock, models, replace(SMALL, prompts=4))
    groups = phase.score.call(phase.rollout.call(phase.draw.call(step), step), step)
    return refilled(HALF, phase.draw, phase.rollout, phase.score, times).call(groups, step), step


def test_it_fills_up_with_other_tasks(small_model: Path) -> None:
    """Of 4 groups 2 stay; a refill of 2 leaves 1, then a refill of 1 leaves 1: 4 groups again, of 4 different tasks."""
    built = dapo(TASK, n=2, refills=0)
    models = build_cast(built, small_model)
    assert [len(walked(times, models, built)[0]) for times in (0, 1, 2, 9)] == [2, 3, 4, 4]
    groups, step = walked(9, models, built)
    assert step.notes.values()["refilled"] == 3
    assert len({group.task.key for group in groups}) == 4
    assert all("reward" in trace.scores for group in groups for trace in group.traces)


def test_a_rerun_draws_the_same_and_another_step_others(small_model: Path) -> None:
    built = dapo(TASK, n=2, refills=0)
    models = build_cast(built, small_model)

    def replies(clock: Clock) -> list[list[int]]:
        return [trace.tokens.tolist() for group in walked(2, models, built, clock)[0] for trace in group.traces]

    assert replies(Clock(3, 10)) == replies(Clock(3, 10)) != replies(Clock(4, 10))


def test_without_refills_it_is_the_filter(small_model: Path) -> None:
    keep = mixed()
    built = dapo(TASK, n=2, refills=0)
    phase = built.phases[0]
    assert refilled(keep, phase.draw, phase.rollout, phase.score, 0) is keep
    assert [atom.name for atom in phase.select] == ["mixed"]
    with pytest.raises(ValueError, match="option 'refills' is -1; it must be at least 0"):
        dapo(TASK, refills=-1)


def test_a_full_batch_is_left_alone(small_model: Path) -> None:
    """With as many mixed groups as prompts nothing is drawn again; refills change nothing."""
    same_gradient(dapo(TASK, n=8, refills=0, minibatches=1), dapo(TASK, n=8, refills=5, minibatches=1), small_model)
