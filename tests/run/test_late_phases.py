"""Phases that a run is too short for are warned of."""

from __future__ import annotations

from burnish.methods.table import METHODS
from burnish.run.late_phases import late_phases
from burnish.tasks.table import source

TASK = source("sort")


def test_a_run_that_ends_in_the_critics_warm_up_trains_no_policy() -> None:
    vapo = METHODS["vapo"].build(TASK, value_warmup=50)
    said = late_phases(vapo, 50)
    assert "'main' of vapo does not begin within 50 steps, so the policy is not trained" in said and "--steps" in said
    assert late_phases(vapo, 51) == ""


def test_a_policy_that_learns_before_is_said_to_learn() -> None:
    said = late_phases(METHODS["reft"].build(TASK, warmup=10), 5)
    assert "does not begin within 5 steps;" in said and "not trained" not in said


def test_phases_that_are_switched_off_or_always_there_are_no_news() -> None:
    assert late_phases(METHODS["vapo"].build(TASK, value_warmup=0), 1) == ""
    assert late_phases(METHODS["grpo"].build(TASK), 1) == ""
