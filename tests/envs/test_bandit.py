"""Bandits: the algorithms by hand, the environment, its regret, and its guides."""

from __future__ import annotations

import math
import random
import statistics
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, build_cast

from burnish.core.loop import loop
from burnish.envs.bandit import Arms, Bandit
from burnish.envs.bandit_algorithms import LinUCB, best_arm, thompson, ucb, worth
from burnish.methods.table import find
from burnish.tasks.resolve import resolve_task
from burnish.tasks.table import source


def test_ucb_by_hand() -> None:
    """n (4, 1), sums (2, 1), t 5, alpha .5: .5 + .449 and 1 + .897."""
    (first, second) = ucb([4, 1], [2.0, 1.0])
    assert first == pytest.approx((0.5, 0.449), abs=1e-3) and second == pytest.approx((1.0, 0.897), abs=1e-3)
    assert worth(ucb([4, 1], [2.0, 1.0], alpha=0.0)) == [0.5, 1.0]  # greedy
    assert ucb([3, 0], [3.0, 0.0])[1] == (0.0, math.inf) and best_arm(worth(ucb([3, 0], [3.0, 0.0]))) == 1


def test_linucb_by_hand() -> None:
    """One number: after x = 2 with reward 3, A = 1 + 4, b = 6: theta 1.2, at x = 1 the bonus .5 sqrt(1/5)."""
    known = LinUCB(2, 1)
    assert known.terms((2.0,)) == [(0.0, 1.0), (0.0, 1.0)]
    known.saw(0, (2.0,), 3.0)
    assert known.terms((1.0,))[0] == pytest.approx((1.2, 0.5 * math.sqrt(0.2)))
    assert known.terms((1.0,))[1] == (0.0, 0.5)


def test_linucb_solves_the_ridge_regression() -> None:
    """Against the normal equations: A theta = b with A = I + sum x x'."""
    dice = random.Random(0)
    known, seen = LinUCB(1, 3), []
    for _ in range(20):
        x = tuple(dice.random() for _ in range(3))
        seen.append((x, dice.random()))
        known.saw(0, *seen[-1])
    theta = [known.terms(tuple(float(i == j) for j in range(3)))[0][0] for i in range(3)]
    for i in range(3):
        left = theta[i] + sum(x[i] * sum(t * one for t, one in zip(theta, x, strict=True)) for x, _ in seen)
        assert left == pytest.approx(sum(reward * x[i] for x, reward in seen))


def test_thompson_draws_from_the_posterior() -> None:
    """Beta(1 + 8, 1 + 2) has the mean 9/12, Beta(1, 1) the mean 1/2."""
    dice = random.Random(0)
    drawn = [thompson([10, 0], [8.0, 0.0], dice) for _ in range(4000)]
    assert [statistics.fmean(own) for own in zip(*drawn, strict=True)] == pytest.approx([0.75, 0.5], abs=0.02)


def test_an_episode_earns_its_mean_reward_and_counts_regret() -> None:
    arms = Arms("bernoulli", ((1.0,), (0.0,)), 4, 7)
    env = Bandit(arms)
    assert env.reset() == "2 arms, 1 to 2. 4 pulls. Earn the most."
    found = [env.step(said) for said in ("1", "pull arm 2", "no idea", "1")]
    assert [outcome.reward for outcome in found] == [0.25, 0.0, 0.0, 0.25]
    assert [outcome.metrics()["regret"] for outcome in found] == [0.0, 1.0, 2.0, 2.0]
    assert found[2].observation == "say an arm, 1 to 2" and found[-1].terminated
    with pytest.raises(ValueError, match="all pulls are made"):
        env.step("1")


@pytest.mark.parametrize("kind", ["bernoulli", "gaussian", "contextual"])
def test_rewards_are_the_same_in_every_episode_and_have_their_mean(kind: str) -> None:
    problem = source("bandit", kind=kind).problem("train", 0)  # type: ignore[attr-defined]
    first, second = Bandit(problem), Bandit(problem)
    actions = ["1", "2", "1", "3", "1"]
    assert [first.step(a).reward for a in actions] == [second.step(a).reward for a in actions]
    assert first.key() == second.key()
    if kind != "contextual":
        paid = [Arms(kind, ((0.7,),), 1, tape).reward(0, 0, 0) for tape in range(3000)]
        assert statistics.fmean(paid) == pytest.approx(0.7, abs=0.03)


@pytest.mark.parametrize("kind", ["bernoulli", "gaussian", "contextual"])
def test_the_oracle_regrets_less_than_recorded_and_random_play(kind: str) -> None:
    game = source("bandit:3", kind=kind)
    regrets: dict[str, list[float]] = {"oracle": [], "episode": [], "random": []}
    for i in range(30):
        task, dice = game.task("train", i), random.Random(i)
        for name, own in regrets.items():
            env = task.given["env"]()
            recorded = [m["content"] for m in task.given.get(name, ()) if m["role"] == "assistant"]
            for action in recorded or [str(dice.randint(1, 5)) for _ in range(16)]:
                env.step(action)
            own.append(env.regret)
    means = {name: statistics.fmean(own) for name, own in regrets.items()}
    assert means["oracle"] < means["episode"] < means["random"]


def test_the_guide_prints_both_terms_of_each_arm() -> None:
    env = Bandit(Arms("bernoulli", ((1.0,), (0.0,)), 4, 7), "ucb")
    assert env.reset().splitlines()[1:] == ["1: value 0.00 bonus inf", "2: value 0.00 bonus inf"]
    env.step("1")
    assert str(env.step("2").observation).splitlines() == [
        "reward 0",
        "1: value 1.00 bonus 0.59",  # sqrt(.5 ln 2 / 1)
        "2: value 0.00 bonus 0.59",
    ]
    drawn = Bandit(Arms("bernoulli", ((1.0,), (0.0,)), 4, 7), "thompson").reset().splitlines()
    assert [line.split(" sample ")[0] for line in drawn[1:]] == ["1:", "2:"]


def test_options_are_named_in_the_task_and_checked() -> None:
    game: Any = resolve_task("bandit:1,kind=contextual,guide=linucb")
    assert "context" in game.task("train", 0).prompt[0]["content"]
    for options, said in (
        ({"kind": "poisson"}, "no kind 'poisson'"),
        ({"guide": "oracle"}, "no guide 'oracle'"),
        ({"guide": "linucb"}, "is for contextual bandits"),
        ({"kind": "gaussian", "guide": "thompson"}, "is for bernoulli bandits"),
    ):
        with pytest.raises(ValueError, match=said):
            source("bandit", **options)
    keys = {split: {game.task(split, i).key for i in range(40)} for split in ("train", "heldout")}
    assert not keys["train"] & keys["heldout"]


def test_a_transcript_is_verified_by_its_mean_reward() -> None:
    game = source("bandit:1")
    task = game.task("train", 0)
    said = [m for m in task.given["oracle"] if m["role"] == "assistant"]
    verdict = game.verify(task, "\n".join(m["content"] for m in said))
    assert verdict.score == pytest.approx(sum(m["reward"] for m in said))
    assert game.verify(task, "").score == 0.0


def test_played_bandits_report_their_regret(small_model: Path) -> None:
    built = find("gigpo").build(source("bandit:1"), n=2)
    report = next(loop(built, build_cast(built, small_model), SMALL, steps=1))
    assert report.metrics["env/regret"] > 0
    oracle = find("oracle_bc").build(source("bandit:1"))
    assert next(loop(oracle, build_cast(oracle, small_model), SMALL, steps=1)).metrics["recorded_return"] > 0
