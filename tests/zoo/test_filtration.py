"""PF-PPO's filtration, RLEP's replay and MoE-LM's manager: numbers by hand, and each without its idea."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, Tossed, build_cast, coin, credited
from gradients import gradient

from burnish.core.loop import loop
from burnish.core.method import Method
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit.group import group_relative
from burnish.methods.table import find
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo.moe_lm import best_candidate_targets, chosen
from burnish.zoo.pf_ppo import Fits, filtered, r_squared

TASK = Task("question", "?", {}, "?")


def nothing(step: int = 0) -> Step:
    return Step(Clock(step, 10), None, SMALL)  # type: ignore[arg-type]


def scored(*rewards: float, truth: tuple[float, ...] = ()) -> Group:
    traces = [Trace((), i, scores={"reward": r}) for i, r in enumerate(rewards)]
    for trace, true in zip(traces, truth, strict=False):
        trace.scores["truth"] = true
    return Group(TASK, traces)


def rewards_of(group: Group) -> list[float]:
    return [trace.scores["reward"] for trace in group.traces]


def gradients(method: Method, base: Path) -> list[torch.Tensor]:
    return [gradient(groups, phase.learn, step) for phase, groups, step in credited(method, build_cast(method, base))]


# -------------------------------------------------------------------------------------------------- filtration


def test_the_ranks_of_each_strategy() -> None:
    for name, kept in (("bon", [0.9]), ("bw", [0.9, 0.1]), ("all", [0.5, 0.9, 0.1, 0.4])):
        (group,) = filtered(name).call([scored(0.5, 0.9, 0.1, 0.4)], nothing())
        assert rewards_of(group) == kept
        assert all("filtered" in trace.tags for trace in group.traces)
    seen = set()
    for step in range(30):
        (group,) = filtered("br").call([scored(0.5, 0.9, 0.1, 0.4)], nothing(step))
        assert 0.9 in rewards_of(group) and len(group.traces) == 2
        seen |= set(rewards_of(group))
    assert seen == {0.5, 0.9, 0.1, 0.4}
    assert rewards_of(filtered("bw").call([scored(0.3)], nothing())[0]) == [0.3]


def test_r_squared_by_hand() -> None:
    """x 0, 1, 2, y 0, 0, 1: slope 1/2, intercept -1/6, residuals 1/6, -1/3, 1/6: SSE 1/6, SST 2/3: 1 - 1/4."""
    assert r_squared([0.0, 1.0, 2.0], [0.0, 0.0, 1.0]) == pytest.approx(0.75)
    assert r_squared([0.0, 1.0, 2.0], [3.0, 5.0, 7.0]) == pytest.approx(1.0)
    assert r_squared([1.0, 1.0, 1.0], [0.0, 1.0, 0.0]) == 0.0
    assert r_squared([0.0, 1.0, 2.0], [1.0, 1.0, 1.0]) == 1.0
    assert r_squared([0.0, 1.0], [0.0, 1.0]) == 0.0


def test_the_strategy_with_the_best_fit_is_chosen() -> None:
    """The proxy is right about the best and the worst reply and wrong in the middle: bw fits exactly."""
    fits = Fits("fits")
    part = filtered(fits, truth="truth")
    for step in range(12):
        group = scored(3.0 + step % 2, 1.5, 1.4, 0.0, truth=(3.0 + step % 2, -4.0 * (step % 3), 6.0 * (step % 2), 0.0))
        (kept,) = part.call([group], nothing(step))
    assert fits.choice() == "bw" and rewards_of(kept) == [4.0, 0.0]
    assert fits.r_squared("bw") == pytest.approx(1.0) and fits.r_squared("br") < 0.9
    again = Fits("fits")
    again.load_state_dict(fits.state_dict())
    assert again.points == fits.points


def test_pf_ppo_of_all_replies_is_ppo(small_model: Path) -> None:
    options = {"n": 2, "updates": 1}
    task = rewarded(source("sort"), coin)
    (plain,) = gradients(find("ppo").build(task, **options), small_model)
    for strategy in ("all", "bw"):  # the best and the worst of two are all of them
        (found,) = gradients(find("pf_ppo").build(task, strategy=strategy, **options), small_model)
        assert torch.equal(found, plain)
    with pytest.raises(ValueError, match="pass --reward-model"):
        find("pf_ppo").build(task, strategy="r2")


# ------------------------------------------------------------------------------------------------------ replay


def test_advantages_are_over_fresh_and_replayed_replies() -> None:
    """G 2 (0, 1), M 2 (1, 1): mean .75, sample deviation .5: -1.5, .5, .5, .5."""
    group = Group(TASK, [Trace((Turn(torch.zeros(1), "policy"),), scores={"reward": r}) for r in (0.0, 1.0, 1.0, 1.0)])
    group_relative().call([group], nothing())
    found = [float(trace.streams["adv"][0]) for trace in group.traces]
    assert found == pytest.approx([-1.5, 0.5, 0.5, 0.5], abs=1e-4)


def test_right_replies_of_the_collector_join_the_policys_groups(small_model: Path) -> None:
    task = rewarded(source("sort"), coin)
    built = find("rlep").build(task, n=4, replay=2, collect_steps=1, minibatches=1)
    models = build_cast(built, small_model)
    report = next(loop(built, models, SMALL, steps=1))
    pool = built.stateful()["pool"]
    right = {tuple(t.tokens.tolist()) for g in pool.groups for t in g.traces}  # type: ignore[attr-defined]
    assert right and all(t.scores["reward"] == 1 for g in pool.groups for t in g.traces)  # type: ignore[attr-defined]
    by_task = {g.task.key: len(g.traces) for g in pool.groups}  # type: ignore[attr-defined]
    for group in report.groups["main"]:
        replayed = [trace for trace in group.traces if "replay" in trace.tags]
        assert len(replayed) == min(2, by_task.get(group.task.key, 0)) and len(group.traces) == 4 + len(replayed)
        assert {tuple(trace.tokens.tolist()) for trace in replayed} <= right
        assert all(trace.scores["correct"] == 1 and "replay" in trace.authors() for trace in replayed)
        for trace in replayed:  # pi_old is the policy's own, which is known for every reply token
            assert trace.streams["old"][trace.by("replay")].isfinite().all()


def test_without_replay_the_second_run_is_the_first(small_model: Path) -> None:
    """Both start from one model and see the same questions: their updates differ by their samples alone."""
    task = rewarded(source("sort"), coin)
    built = find("rlep").build(task, n=4, replay=0, collect_steps=1, minibatches=1)
    (collect, groups, _), (main, fresh, _) = credited(built, build_cast(built, small_model))
    assert [g.task.key for g in groups] == [g.task.key for g in fresh]
    assert all(len(group.traces) == 4 and "replay" not in t.tags for group in fresh for t in group.traces)
    assert [type(term.norm) for term in collect.learn.terms] == [type(term.norm) for term in main.learn.terms]


# ----------------------------------------------------------------------------------------------------- manager


def transition(reward: float, after: tuple[float, ...]) -> Group:
    """u of two tokens after a prompt of one; the target critic's score of each candidate after it."""
    turns = (Turn(torch.zeros(1), "task"), Turn(torch.zeros(2), "manager"), Turn(torch.zeros(1), "env"))
    nan = float("nan")
    past = Trace(turns, turn_scores={"reward": [nan, reward, nan]}, tags=frozenset({"past"}), note={"turn": 1})
    past.streams["target_score"] = torch.tensor([nan, nan, nan, 9.0])
    traces = [Trace(turns, tags=frozenset({"candidate"})) for _ in after]
    for trace, value in zip(traces, after, strict=True):
        trace.streams["target_score"] = torch.tensor([nan, nan, nan, value])
    return Group(TASK, [past, *traces])


def test_the_managers_target_by_hand() -> None:
    """r .5, gamma .9, Q' of three candidates .1, .4, .2: .5 + .9 x .4 = .86; r alone at the end."""
    goes_on, ended = transition(0.5, (0.1, 0.4, 0.2)), transition(1.0, ())
    best_candidate_targets(gamma=0.9).call([goes_on, ended], nothing())
    assert goes_on.traces[0].streams["q_target"][2].item() == pytest.approx(0.86)
    assert ended.traces[0].streams["q_target"][2].item() == 1.0
    assert goes_on.traces[0].streams["q_target"][[0, 1, 3]].isnan().all()


def test_the_choice_among_candidates() -> None:
    dice = random.Random(0)
    assert chosen([0.1, 0.7, 0.7], 0.0, dice) == 1
    drawn = [chosen([0.0, 1.0], 1.0, dice) for _ in range(3000)]
    assert sum(drawn) / 3000 == pytest.approx(0.731, abs=0.03)  # 1 / (1 + e^-1)
    assert all(chosen([0.0, 1.0], 0.01, dice) == 1 for _ in range(50))


def test_one_expert_leaves_no_choice(small_model: Path) -> None:
    options: dict[str, Any] = {"n": 1, "batch": 2, "critic_updates": 1, "critic_warmup": 0}
    for experts, share in (("", {"expert/0"}), ("|Be brief.", {"expert/0", "expert/1"})):
        built = find("moe_lm").build(source("guess:1"), experts=experts, **options)
        report = next(loop(built, build_cast(built, small_model), SMALL, steps=1))
        found = {name: value for name, value in report.metrics.items() if name.startswith("expert/")}
        assert set(found) == share and sum(found.values()) == pytest.approx(1.0)
        for trace in (trace for group in report.groups["explore"] for trace in group.traces):
            assert set(trace.authors()) <= {"task", "manager", "env"}


@pytest.mark.slow
def test_the_manager_learns_to_choose(small_model: Path) -> None:
    """Replies of one token, paid by a coin that the text tosses: a quarter of them pays. Four leave a choice,
    which the critic learns to make; 40 steps went from 0.39 (mean of the first 8) to 0.70 (of the last 8).
    """
    options: dict[str, Any] = {
        "gamma": 0.0,
        "tau": 1.0,
        "choice": 0.0,
        "critic_lr": 3.0,
        "critic_updates": 4,
        "batch": 64,
    }
    built = find("moe_lm").build(Tossed(source("guess:1")), experts="|||", n=2, critic_warmup=100, **options)
    settings = replace(SMALL, prompts=8, max_new_tokens=1)
    reports = list(loop(built, build_cast(built, small_model, settings), settings, steps=20))
    earned = [report.metrics["played_return"] / report.metrics["turns"] for report in reports]
    assert sum(earned[-6:]) / 6 > sum(earned[:3]) / 3 + 0.15
