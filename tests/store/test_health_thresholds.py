"""Every threshold of every health warning: no warning just below it, a warning just above it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from test_health import steps

from burnish.store.health import DETECTORS, RECENT, WINDOW, HealthLimits, worries

History = list[dict[str, Any]]
LIMITS = HealthLimits(max_new_tokens=8, logp_apart=1e-3)
A_BIT = 1e-6


def last(n: int, before: float, now: float) -> list[float]:
    """A metric with one value in the first `n` steps and another in the last RECENT."""
    return [before] * n + [now] * RECENT


def held_out(best: float, second: float, now: float, reward: float = 0.5) -> History:
    """Three held-out evaluations, and a training reward that was 0.5 at the first and is `reward` at the end."""
    found: History = [{"reward": 0.5} for _ in range(5)] + [{"reward": reward} for _ in range(10)]
    for i, accuracy in ((4, best), (9, second), (14, now)):
        found[i]["heldout/accuracy"] = accuracy
    return found


# kind, what is compared -> (threshold, history for a value, 1 where the warning is above the threshold and -1 below it)
EDGES: dict[tuple[str, str], tuple[float, Callable[[float], History], int]] = {
    ("collapse", "the best reward"): (0.2, lambda x: steps(reward=last(10, x, 0.0)), 1),
    ("collapse", "a quarter of it"): (0.2, lambda x: steps(reward=last(10, 0.8, x)), -1),
    ("solved", "groups"): (0.8, lambda x: steps(reward=[1.0] * 5, zero_variance_groups=[x] * 5), 1),
    ("solved", "reward"): (0.9, lambda x: steps(reward=[x] * 5, zero_variance_groups=[1.0] * 5), 1),
    ("flat", "groups"): (0.8, lambda x: steps(reward=[0.5] * 5, zero_variance_groups=[x] * 5), 1),
    ("flat", "reward"): (0.9, lambda x: steps(reward=[x] * 5, zero_variance_groups=[1.0] * 5), -1),
    ("unread", "share"): (0.5, lambda x: steps(judge_unread=[x] * 5), 1),
    ("dropped", "share"): (0.8, lambda x: steps(dropped__short=[x] * 5), 1),
    ("canary", "replies"): (0.0, lambda x: steps(canaries_passed=[0.0] * 4 + [x]), 1),
    ("cut", "share"): (0.5, lambda x: steps(cut_off=[x] * 5), 1),
    ("entropy", "now"): (0.05, lambda x: steps(pg__entropy=last(10, 1.0, x), reward=[0.3] * 15), -1),
    ("entropy", "a fifth of before"): (0.02, lambda x: steps(pg__entropy=last(10, 0.1, x), reward=[0.3] * 15), -1),
    ("entropy", "reward"): (0.9, lambda x: steps(pg__entropy=last(10, 1.0, 0.001), reward=[x] * 15), -1),
    ("unlearned", "twice the start"): (-21.0, lambda x: steps(reply__chosen_logp=last(5, -10.0, x)), -1),
    ("unlearned", "one nat more"): (-1.2, lambda x: steps(reply__chosen_logp=last(5, -0.1, x)), -1),
    ("hacking", "rise of the reward"): (0.3, lambda x: steps(reward=last(5, 0.2, x), correct=[0.5] * 10), 1),
    ("hacking", "rise of a high reward"): (2.4, lambda x: steps(reward=last(5, 2.0, x), correct=[0.5] * 10), 1),
    ("hacking", "rise of correctness"): (0.52, lambda x: steps(reward=last(5, 0.2, 0.9), correct=last(5, 0.5, x)), -1),
    ("hacking", "correctness"): (0.9, lambda x: steps(reward=last(5, 0.2, 0.9), correct=[x] * 10), -1),
    ("over_optimised", "the last"): (0.65, lambda x: held_out(0.7, 0.6, x), -1),
    ("over_optimised", "the one before"): (0.67, lambda x: held_out(0.7, x, 0.5), -1),
    ("over_optimised", "reward"): (0.5 - A_BIT / 2, lambda x: held_out(0.7, 0.6, 0.5, reward=x), 1),
    ("diverged", "twice and a half more"): (4.5, lambda x: steps(sft__nll=last(5, 2.0, x)), 1),
    ("mismatch", "log-probs"): (1e-3, lambda x: steps(mismatch__logp=[x] * 5), 1),
    ("mismatch", "ratio above 1"): (1.02, lambda x: steps(mismatch__ratio=[x] * 5), 1),
    ("mismatch", "ratio below 1"): (0.98, lambda x: steps(mismatch__ratio=[x] * 5), -1),
    ("length", "twice"): (40.0, lambda x: steps(length=last(5, 20.0, x), reward=[0.3] * 10), 1),
    ("length", "8 tokens more"): (10.0, lambda x: steps(length=last(5, 2.0, x), reward=[0.3] * 10), 1),
    ("length", "rise of the reward"): (0.4, lambda x: steps(length=last(5, 20.0, 90.0), reward=last(5, 0.3, x)), -1),
    ("drift", "kl/loss"): (1.0, lambda x: steps(kl__loss=[x] * 5), 1),
    ("drift", "kl"): (1.0, lambda x: steps(kl=[x] * 5), 1),
    ("clipped", "share"): (0.5, lambda x: steps(pg__clipped=[x] * 5), 1),
    ("spike", "20 times the usual"): (10.0, lambda x: steps(grad_norm=[0.5] * 30 + [x]), 1),
}


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: f"{edge[0]}: {edge[1]}")
def test_a_warning_begins_at_its_threshold(edge: tuple[str, str]) -> None:
    threshold, history, side = EDGES[edge]
    bit = A_BIT * max(1.0, abs(threshold))
    above, below = (edge[0] in worries(history(threshold + sign * bit), LIMITS) for sign in (1, -1))
    assert (above, below) == ((True, False) if side > 0 else (False, True))


def test_every_warning_with_a_threshold_has_its_edges() -> None:
    assert {kind for kind, _ in EDGES} == DETECTORS.keys() - {"infinite"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_only_what_is_not_finite_is_called_so(value: float | None) -> None:
    assert "infinite" in worries([{"loss": 1.0}] * 4 + [{"loss": value}], LIMITS)
    assert "infinite" not in worries([{"loss": 1.0}] * 4 + [{"loss": 1e300}], LIMITS)
    assert "infinite" not in worries([{"loss": value}] + [{"loss": 1.0}] * 5, LIMITS), "the last step alone counts"


def test_how_many_steps_a_warning_needs() -> None:
    assert (RECENT, WINDOW) == (5, 200)
    assert not worries(steps(cut_off=[1.0] * 4), LIMITS) and worries(steps(cut_off=[1.0] * 5), LIMITS)
    short, enough = (steps(reward=last(n, 0.2, 0.9), correct=[0.5] * (n + 5)) for n in (4, 5))
    assert "hacking" not in worries(short, LIMITS) and "hacking" in worries(enough, LIMITS)
    assert "spike" not in worries(steps(grad_norm=[0.5] * 18 + [60.0]), LIMITS)
    assert "spike" in worries(steps(grad_norm=[0.5] * 19 + [60.0]), LIMITS)
    assert "spike" not in worries(steps(grad_norm=[0.0] * 30 + [60.0]), LIMITS), "nothing is usual yet"
    assert "spike" in worries(steps(grad_norm=[0.01] * 30 + [60.0]), LIMITS)
    two = held_out(0.7, 0.6, 0.5)
    del two[9]["heldout/accuracy"]
    assert "over_optimised" not in worries(two, LIMITS), "two evaluations are too few"
