"""Methods that are declared by what differs from another."""

from __future__ import annotations

import inspect
from typing import Annotated

import pytest
from conftest import task_for

from burnish import draw, learn, rollout
from burnish.core.option import Option, options_of
from burnish.method import Method, method, roles
from burnish.methods import Arguments, variant
from burnish.methods.table import find

TASK = task_for("grpo")
Count = Annotated[int, Option("Replies.", at_least=1)]


def base(task: draw.Source, *, n: Count = 4, lr_share: float, updates: int = 2) -> Method:
    """A method with a hidden number."""
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        learn=learn.Learn(learn.imitate(), updates=updates),
        models=roles(),
        lr_share=lr_share,
    )


@variant(base)
def slower(*, factor: Annotated[float, Option("How much slower.", above=1)] = 2.0, updates: int = 1) -> Arguments:
    """Slower."""
    return {"lr_share": 1 / factor, "updates": updates}


def test_its_options_are_the_bases_with_its_own_in_their_places() -> None:
    parameters = inspect.signature(slower).parameters
    assert {name: one.default for name, one in parameters.items() if name != "task"} == {
        "n": 4,
        "factor": 2.0,
        "updates": 1,
    }
    assert list(parameters) == ["task", "n", "factor", "updates"]
    assert (options_of(slower)["factor"].above, options_of(slower)["n"].at_least) == (1, 1)
    assert (slower.__name__, slower.__doc__) == ("slower", "Slower.")


def test_it_builds_the_base_with_what_it_sets() -> None:
    built = slower(TASK, factor=8.0, updates=3)
    assert (built.lr_share, built.phases[0].learn.updates) == (0.125, 3)
    assert built.phases[0].rollout.name == base(TASK, lr_share=1.0).phases[0].rollout.name
    assert slower(TASK, n=7).phases[0].rollout.name == base(TASK, n=7, lr_share=1.0).phases[0].rollout.name


def test_what_it_sets_itself_is_no_option_of_it() -> None:
    with pytest.raises(TypeError, match="lr_share"):
        slower(TASK, lr_share=1.0)


@pytest.mark.parametrize(
    ("name", "others"),
    [("best_of_n_distill", ("raft", {"n": 16})), ("cdpo", ("dpo", {"label_smoothing": 0.1}))],
)
def test_a_registered_variant_is_its_base_with_other_numbers(name: str, others: tuple[str, dict[str, float]]) -> None:
    mine, theirs = find(name).build(TASK), find(others[0]).build(TASK, **others[1])
    shown = [[placed.part.name for phase in one.phases for placed in phase.parts()] for one in (mine, theirs)]
    assert shown[0] == shown[1]
    assert (mine.name, mine.lr_share) == (name, theirs.lr_share)


def test_an_error_of_the_base_is_told_of_the_variant() -> None:
    with pytest.raises(ValueError, match=r"^cdpo: option 'eps' is 0.7; it must be at least 0 and below 0.5"):
        find("cdpo").build(TASK, eps=0.7)
