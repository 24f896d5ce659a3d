"""The passes between a built method and the run: their order, and that none does anything uninvited."""

from __future__ import annotations

from dataclasses import replace

from burnish.compose.passes import PASSES, Additions, composed
from burnish.compose.seats import read_opponent
from burnish.core.parts import Part
from burnish.methods.table import find
from burnish.rewards.read import named_shapes
from burnish.tasks.table import source
from burnish.tasks.task_set import with_opponent


def parts_of(method: object) -> list[str]:
    return [placed.part.name for phase in method.phases for placed in phase.parts()]  # type: ignore[attr-defined]


def test_the_order_is_the_one_that_is_printed() -> None:
    assert [one.what for one in PASSES] == [
        "episodes in place of replies",
        "an opponent at the other seats",
        "prompts by a curriculum",
        "swapped parts",
        "rewards and shapes",
        "a preference oracle",
        "no model that nothing reads",
        "models of their own for other seats",
        "episodes that outlive a step",
        "replies in chunks",
    ]


def test_a_run_that_adds_nothing_keeps_the_method() -> None:
    task = source("sort")
    built = find("grpo").build(task, n=2)
    assert composed(built, Additions("grpo", task)) == built


def test_each_pass_changes_what_it_is_for() -> None:
    sort, guess = source("sort"), source("guess")
    built = find("grpo").build(sort, n=2)
    plain = parts_of(built)
    idle = find("grpo").build(sort, n=2, beta=0.0)
    assert "ref" in idle.models and "ref" not in composed(idle, Additions("grpo", sort)).models
    assert parts_of(composed(built, Additions("grpo", sort, swap="group_relative=leave_one_out()"))) != plain
    shaped = composed(built, Additions("grpo", sort, shapes=named_shapes("overlong(0.2)", sort)))
    assert len(parts_of(shaped)) > len(plain)
    assert composed(built, Additions("grpo", sort, chunk=4)).phases[0].rollout != built.phases[0].rollout
    played = composed(find("grpo").build(guess, n=2), Additions("grpo", guess))
    assert not any(isinstance(atom, Part) and atom.kind == "task_reward" for atom in played.phases[0].score)


def test_an_opponent_takes_the_other_seats() -> None:
    opponent = read_opponent("self")
    task = with_opponent(source("nim"), opponent.train, opponent.heldout)
    built = find("grpo").build(task, n=2)
    with_one = composed(built, Additions("grpo", task, opponent=opponent))
    assert with_one != composed(built, replace(Additions("grpo", task), opponent=None))
