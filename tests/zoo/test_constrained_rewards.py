"""CGPO, constrained RLHF and controlled rewards: numbers derived by hand, limits, and what must not be paid."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, coin
from shaping import a_step, group, trace

from burnish.core.loop import loop
from burnish.core.types import Group, Trace, Turn
from burnish.learn.maths.preference import Replies
from burnish.methods.table import find
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo import cgpo as zoo_cgpo
from burnish.zoo.cgpo import closeness, constrained_advantage, dpo_with_nll_loss
from burnish.zoo.constrained_rlhf import EQUALITY, SquashedMultipliers, mixed_advantages, read_thresholds, standardised
from burnish.zoo.dynamic_control_ideation import control_words, steered_sum

TASK = rewarded(source("sort"), coin)


def baseline(reward: float) -> Trace:
    """A reply of the starting policy."""
    turns = (Turn(torch.tensor([1, 2]), "task"), Turn(torch.tensor([9, 9]), "ref", torch.zeros(2)))
    right = {"reward": reward, "correct": float(reward > 0.5)}
    return Trace(turns, scores=right, tags=frozenset({"baseline"}))


def judged(*rows: tuple[float, float, float]) -> Group:
    """Replies with (reward, satisfied, log ratio), and a baseline of reward 0 that is satisfied."""
    traces = []
    for reward, good, ratio in rows:
        one = trace(reward)
        one.scores.update(satisfied=good, log_ratio=ratio)
        traces.append(one)
    base = baseline(0.0)
    base.scores.update(satisfied=1.0, log_ratio=0.0)
    return group(*traces, base)


def test_all_judges_must_pass() -> None:
    own = group(trace(1.0), trace(1.0), trace(0.0))
    for one, safe in zip(own.traces, (1.0, 0.0, 1.0), strict=True):
        one.scores["reward/safe"] = safe
    zoo_cgpo.satisfied(["correct", "safe"]).call([own], a_step())
    assert [t.scores["satisfied"] for t in own.traces] == [1, 0, 0]
    row = group(*own.traces, given={"judges": ["safe"]})  # a row with judges of its own
    zoo_cgpo.satisfied(["correct"]).call([row], a_step())
    assert [t.scores["satisfied"] for t in row.traces] == [1, 0, 1]
    with pytest.raises(ValueError, match="no reward called 'kind'"):
        zoo_cgpo.satisfied(["kind"]).call([own], a_step())


def test_calibrated_reward_by_hand() -> None:
    """sigmoid(2 - 1) = 0.731059; the baseline itself 1/2."""
    own = group(trace(2.0), trace(1.0), baseline(1.0))
    zoo_cgpo.calibrated().call([own], a_step())
    assert [t.scores["calibrated"] for t in own.traces] == pytest.approx([0.731059, 0.5, 0.5])


def test_crpg_by_hand() -> None:
    """R = R_0, log ratio KLmax / 2: 0.5 x 0.5 = 0.25; -KLmax / 2: 0.75; a violator 0, whatever its reward; mean 1/3."""
    own = judged((0.0, 1.0, 5.0), (0.0, 1.0, -5.0), (99.0, 0.0, 0.0))
    zoo_cgpo.calibrated().call([own], a_step())
    constrained_advantage(10.0).call([own], a_step())
    found = [float(t.streams["adv"][-1]) for t in own.traces]
    assert found[:3] == pytest.approx([0.25 - 1 / 3, 0.75 - 1 / 3, -1 / 3]) and math.isnan(found[3])
    assert closeness(30.0, 10.0) == 0 and closeness(1e9, math.inf) == 1


def test_codpo_takes_the_best_that_satisfies_and_the_worst_that_violates() -> None:
    own = judged((-3.0, 1.0, 0.0), (-2.0, 1.0, 0.0), (5.0, 0.0, 0.0), (-1.0, 0.0, 0.0))
    own.traces.pop()
    best, worst = own.traces[1], own.traces[3]
    (kept,) = zoo_cgpo.satisfied_vs_violating().call([own], a_step())
    assert kept.traces == [best, worst] and kept.pairs == [(0, 1)]  # also where all that satisfy are negative
    fine = judged((0.2, 1.0, 0.0), (0.7, 1.0, 0.0))
    fine.traces.pop()
    expected = [fine.traces[1], fine.traces[0]]
    assert zoo_cgpo.satisfied_vs_violating().call([fine], a_step())[0].traces == expected
    none = judged((0.2, 0.0, 0.0))
    none.traces.pop()
    equal = judged((0.2, 1.0, 0.0), (0.2, 1.0, 0.0))
    equal.traces.pop()
    assert zoo_cgpo.satisfied_vs_violating().call([none, equal], a_step()) == []


def test_codpo_loss_by_hand() -> None:
    """Equal log-ratios: ln 2; with nll 1 and log pi(y_w) = -6 over 3 tokens: + 2."""
    w = Replies(torch.tensor([-6.0]), torch.tensor([0.0]), torch.tensor([3.0]), {}, {})
    assert float(dpo_with_nll_loss(w, w, 0.1, 1.0)) == pytest.approx(math.log(2) + 2)
    assert float(dpo_with_nll_loss(w, w, 0.1, 0.0)) == pytest.approx(math.log(2))


def test_crraft_cuts_hard_and_falls_back_on_the_baseline() -> None:
    far = judged((1.0, 1.0, 11.0), (0.5, 1.0, 9.0), (9.0, 0.0, 0.0))
    chosen = far.traces[1]
    assert zoo_cgpo.best_satisfying(10.0).call([far], a_step())[0].traces == [chosen]
    nothing = judged((1.0, 0.0, 0.0))
    base = nothing.traces[-1]
    assert zoo_cgpo.best_satisfying(10.0).call([nothing], a_step())[0].traces == [base]
    bad = judged((1.0, 0.0, 0.0))
    bad.traces[-1].scores["satisfied"] = 0.0
    assert zoo_cgpo.best_satisfying(10.0).call([bad], a_step()) == []


@pytest.mark.parametrize("name", ["cgpo_crpg", "cgpo_codpo", "cgpo_crraft"])
def test_log_ratios_and_baselines_of_a_step(name: str, small_model: Path) -> None:
    method = find(name).build(TASK, n=4)
    report = next(loop(method, build_cast(method, small_model), SMALL, steps=1))
    traces = [t for own in report.groups["main"] for t in own.traces]
    assert traces and report.metrics["pg/loss" if "pg/loss" in report.metrics else "reply/loss"] is not None
    for one in traces:
        assert one.scores.get("log_ratio", 0.0) == pytest.approx(0, abs=1e-4)  # the policy is still its reference
        if name == "cgpo_crraft":
            assert one.scores["satisfied"] == 1


def test_mixed_advantages_by_hand() -> None:
    """One reward with mu = tanh(0.5) = 0.462117; two replies of one token, values 0: A_1 = r, A_KL = ref - old.

    r 1 and 0 -> +1, -1 when standardised; KL rewards -2 and 0 -> -1, +1:
    A = (1 - 0.462117) (-1) + 0.462117 = -0.075766, and its negative
    """
    mu = SquashedMultipliers({"correct": 0.25}, EQUALITY, lr=0.1, momentum=0.0)
    mu.raw["correct"] = 0.5
    own = group(trace(1.0, 1), trace(0.0, 1))
    for one, ref in zip(own.traces, (-2.5, -0.5), strict=True):
        one.streams |= {"old": torch.tensor([0.0, 0.0, -0.5]), "ref": torch.tensor([0.0, 0.0, ref])}
        one.streams["value"] = torch.zeros(3, 2)
    step = a_step()
    mixed_advantages(mu).call([own], step)
    assert [float(t.streams["adv"][-1]) for t in own.traces] == pytest.approx([-0.075766, 0.075766], abs=1e-5)
    assert own.traces[0].streams["returns"][-1].tolist() == [1, -2]
    assert step.notes.means()["multiplier/correct"] == pytest.approx(0.462117)
    # d/d raw of mu (0.5 - 0.25) = (1 - 0.462117^2) 0.25 = 0.196612: above its target, so it falls
    assert mu.raw["correct"] == pytest.approx(0.5 - 0.0196612, abs=1e-6)


def test_standardised_over_all_replies() -> None:
    found = standardised([torch.tensor([1.0, 3.0]), torch.tensor([2.0])])
    assert torch.cat(found).mean() == pytest.approx(0, abs=1e-6)
    assert torch.cat(found).std(unbiased=False) == pytest.approx(1, abs=1e-6)


def test_thresholds_are_read() -> None:
    assert read_thresholds("math=0.9, brief=-1") == {"math": 0.9, "brief": -1}
    for text, why in {"math": "is no NAME=NUMBER", "math=x": "is no NAME=NUMBER", "": "name at least one"}.items():
        with pytest.raises(ValueError, match=why):
            read_thresholds(text)


def test_multipliers_of_a_run_are_saved(small_model: Path) -> None:
    method = find("constrained_rlhf").build(TASK, thresholds="correct=0.9,reward=0.1", n=4, updates=1)
    models = build_cast(method, small_model)
    reports = list(loop(method, models, SMALL, steps=2))
    (multipliers,) = method.stateful().values()
    raw = multipliers.state_dict()["raw"]
    assert raw["correct"] > 0 > raw["reward"]  # below its threshold, and above it
    assert reports[0].metrics["multiplier/correct"] == 0.5 < reports[1].metrics["multiplier/correct"]
    assert models["critic"].module is not None and method.models["critic"].outputs == 3


def test_steered_sums_by_hand() -> None:
    rewards = {"a": 1.0, "b": 0.5}
    assert steered_sum(rewards, {"a": 1, "b": -1}) == 0.25 and steered_sum(rewards, {"a": 0, "b": 0}) == 0.75
    assert steered_sum(rewards, {"a": -1, "b": 0}) == -1
    assert control_words({"a": 1, "b": -0.5, "c": 0}) == "a +1, b -0.5" and control_words({"a": 0}) == ""


def test_levels_of_zero_leave_prompts_alone_and_others_steer(small_model: Path) -> None:
    for levels, same in (("0", True), ("-1,1", False)):
        method = find("dynamic_control").build(TASK, rewards="correct", levels=levels, n=2, updates=1)
        report = next(loop(method, build_cast(method, small_model), SMALL, steps=1))
        plain = find("ppo").build(TASK, n=2, updates=1)
        other = next(loop(plain, build_cast(plain, small_model), SMALL, steps=1))
        prompts = [t.turns[0].tokens.tolist() for own in report.groups["main"] for t in own.traces]
        expected = [t.turns[0].tokens.tolist() for own in other.groups["main"] for t in own.traces]
        assert (prompts == expected) is same
        for one in (t for own in report.groups["main"] for t in own.traces):
            level = one.note["steer"]["correct"]
            assert one.scores["steered"] == one.scores["correct"] * (level or 1)
    with pytest.raises(ValueError, match="levels is 'x'"):
        find("dynamic_control").build(TASK, rewards="correct", levels="x")
