"""Blends of several rewards, constraints and multipliers: numbers derived by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from shaping import a_step, group, scorer, shaped, trace

from burnish.core.types import Trace
from burnish.score.maths.multipliers import Constraint, DualAscent
from burnish.zoo.constrained_rlhf import EQUALITY, INEQUALITY, SquashedMultipliers


def with_parts(reward: float = 0.0, **parts: float) -> Trace:
    """A reply with named rewards."""
    one = trace(reward)
    one.scores.update({f"reward/{name}": value for name, value in parts.items()})
    return one


def test_normalised_sum_by_hand() -> None:
    """a: 0, 2 -> -+ 1/sqrt 2 x 2/2..., i.e. (x - 1) / (sqrt 2 + 1e-4); b is the same for both and counts as 0."""
    own = group(with_parts(a=0, b=5, c=300), with_parts(a=2, b=5, c=100))
    x = 1 / (math.sqrt(2) + 1e-4)
    y = 100 / (100 * math.sqrt(2) + 1e-4)
    got = shaped("normalised_sum({'a': 1, 'b': 9, 'c': 0.5})", own)[0]
    assert got == pytest.approx([-x + 0.5 * y, x - 0.5 * y])


def test_running_sum_by_hand_and_after_resuming() -> None:
    part = scorer("running_sum({'a': 2})").part
    first, later = group(with_parts(a=1), with_parts(a=2), with_parts(a=3)), group(with_parts(a=2))
    part.call([first], a_step())
    assert [t.scores["reward"] for t in first.traces] == [-2, 0, 2]
    again = scorer("running_sum({'a': 2})").part
    again.state[0].load_state_dict(part.state[0].state_dict())
    for one in (part, again):
        later.traces[0].scores["reward"] = 7.0
        one.call([later], a_step())
        assert later.traces[0].scores["reward"] == 0


def test_lexicographic_by_hand() -> None:
    """(1, 0.2) > (1, 0.1) > (0, 0.9): no amount of b makes up for a."""
    own = group(with_parts(a=1, b=0.1), with_parts(a=0, b=0.9), with_parts(a=1, b=0.2), with_parts(a=0, b=0.9))
    assert shaped("lexicographic(['a', 'b'])", own) == [[0.5, 0, 1, 0]]
    near = group(with_parts(a=0.31, b=0), with_parts(a=0.38, b=-1))
    assert shaped("lexicographic(['a', 'b'], tolerance=0.1)", near) == [[1, 0]]
    assert shaped("lexicographic(['a'])", group(with_parts(a=1), with_parts(a=1))) == [[0, 0]]


def test_the_worst_reward_counts() -> None:
    part = scorer("worst_reward(['a', 'b'], decay=0.5)").part
    first = group(with_parts(a=1, b=0), with_parts(a=0, b=0.2))  # means 0.5 and 0.1
    part.call([first], a_step())
    assert [t.scores["reward"] for t in first.traces] == [0, 0.2]
    second = group(with_parts(a=0.2, b=1))  # running: a (0.5 + 0.2) / 2 = 0.35, b (0.1 + 1) / 2 = 0.55
    step = a_step()
    part.call([second], step)
    assert second.traces[0].scores["reward"] == 0.2
    assert step.notes.means() == {"chosen/a": 1, "chosen/b": 0}


def test_a_gate_lets_a_reward_pass_if_all_judges_do() -> None:
    own = group(with_parts(-3, a=1, b=1), with_parts(9, a=1, b=0.5), with_parts(9, a=0, b=0))
    assert shaped("gated(['a', 'b'], floor=-5)", own) == [[-3, -5, -5]]


def test_wrong_words_are_answered() -> None:
    for text, why in {
        "gated(['safe'])": "no reward called 'safe'; --reward must name it .it has a, and 'reward' and 'correct'",
        "normalised_sum({'a': 'x'})": "does not map names of rewards to numbers",
        "normalised_sum({})": "does not map names of rewards to numbers",
        "lexicographic(3)": "does not list names of rewards",
        "lagrangian()": "no constraint is given",
        "lagrangian(at_least={'a': 1}, at_most={'a': 2})": "'a' has two constraints",
    }.items():
        with pytest.raises(ValueError, match=why):
            shaped(text, group(with_parts(a=1)))


def test_lagrangian_by_hand() -> None:
    """theta 0.5, mean 0.25: lambda 0 -> 0.1 x 0.25 = 0.025; then (r + 0.025 (r_a - 0.5)) / 1.025."""
    part = scorer("lagrangian(at_least={'a': 0.5}, lr=0.1)").part
    first, second = (group(with_parts(1, a=0), with_parts(0, a=0.5)) for _ in range(2))
    part.call([first], a_step())
    assert [t.scores["reward"] for t in first.traces] == [1, 0]  # what a step learns counts from the next one on
    step = a_step()
    part.call([second], step)
    assert [t.scores["reward"] for t in second.traces] == pytest.approx([(1 - 0.0125) / 1.025, 0])
    assert step.notes.means()["multiplier/a"] == pytest.approx(0.025)
    again = scorer("lagrangian(at_least={'a': 0.5}, lr=0.1)").part
    again.state[0].load_state_dict(part.state[0].state_dict())
    assert again.state[0].state_dict() == part.state[0].state_dict() == {"multipliers": {"a": pytest.approx(0.05)}}


def test_multipliers_move_the_right_way_and_stay_in_range() -> None:
    kinds: dict[str, Any] = {"up": Constraint(1.0), "down": Constraint(1.0, -1.0), "same": Constraint(1.0, 1.0, True)}
    dual = DualAscent(kinds, lr=1.0, most=2.0, start=0.0)
    for _ in range(9):
        dual.heard({name: one.slack(3.0) for name, one in kinds.items()})  # a mean of 3
    assert dual.multipliers == {"up": 0.0, "down": 2.0, "same": -2.0}
    for _ in range(9):
        dual.heard({name: one.slack(0.0) for name, one in kinds.items()})
    assert dual.multipliers == {"up": 2.0, "down": 0.0, "same": 2.0}


def test_squashed_multipliers_by_hand() -> None:
    """Sigmoid, raw 0, mean 0.5, theta 0.44, lr 0.1: 0.06 x 1/4 = 0.015, raw -0.0015. Tanh: 0.06, raw -0.006."""
    at_least = SquashedMultipliers({"a": 0.44}, INEQUALITY, 0.1, 0.1)
    assert at_least.value("a") == 0.5
    at_least.heard({"a": 0.5})
    assert at_least.raw["a"] == pytest.approx(-0.0015)
    equal = SquashedMultipliers({"a": 0.44}, EQUALITY, 0.1, 0.1)
    assert equal.value("a") == 0
    equal.heard({"a": 0.5})
    equal.heard({"a": 0.44})  # momentum alone: 0.1 x 0.06
    assert equal.raw["a"] == pytest.approx(-0.006 - 0.0006) and equal.value("a") < 0
    other = SquashedMultipliers({"a": 0.44}, EQUALITY, 0.1, 0.1)
    other.load_state_dict(equal.state_dict())
    assert other.value("a") == equal.value("a") and other.velocity == equal.velocity
