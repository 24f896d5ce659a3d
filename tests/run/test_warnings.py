"""Phases that a run is too short for are warned of."""

from __future__ import annotations

import pytest

from burnish.core.roles import snapshot
from burnish.core.schedules import after, before, steps_of
from burnish.core.types import Clock
from burnish.methods.table import METHODS
from burnish.run.warnings import late_phases
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


def test_copies_that_are_never_taken_are_warned_of() -> None:
    """sync 512 in 40 steps: the reference is that of dpo. One that is taken in the last step is read by nobody."""
    said = late_phases(METHODS["tr_dpo"].build(source("sort"), sync=512), 40)
    assert "the model 'ref' of tr_dpo is to follow 'policy' every 512 steps, which is never within 40 steps" in said
    assert late_phases(METHODS["sppo"].build(TASK, sync=40), 40) != ""
    assert late_phases(METHODS["sppo"].build(TASK, sync=20), 40) == ""


def test_shares_of_the_run_by_hand() -> None:
    """A third of 40 steps is 13: copies after steps 13, 26, 39. Half of it is the first half; 0 is never."""
    past = METHODS["sppo"].build(TASK).models["past"]
    assert [step for step in range(40) if past.due(Clock(step, 40))] == [12, 25, 38]
    assert [step for step in range(9) if snapshot("policy", 3).due(Clock(step, 9))] == [2, 5, 8]
    assert (steps_of(1 / 3, 40), steps_of(0.5, 1), steps_of(7, 40), steps_of(0, 40)) == (13, 1, 7, 0)
    assert [before(0.5)(Clock(step, 4)) for step in range(4)] == [1, 1, 0, 0]
    assert [after(0.5, early=1)(Clock(step, 4)) for step in range(4)] == [0, 1, 1, 1]


ROUNDS = [
    "tr_dpo",
    "accelerated_po",
    "sppo",
    "inpo",
    "mnpo",
    "dno",
    "dno_soft",
    "dpo_vp",
    "online_iterative_dpo",
    "selm",
]
OTHERS = ["rlep", "mixed_po", "semi_online_dpo", "arena_learning"]


@pytest.mark.parametrize("name", ROUNDS + OTHERS)
def test_the_idea_of_a_method_acts_in_its_printed_command(name: str) -> None:
    """At every option's default, in the 40 steps that a command without --steps has."""
    needed = {"rivals": "tiny"} if name == "arena_learning" else {}
    assert late_phases(METHODS[name].build(TASK, **needed), 40) == ""
