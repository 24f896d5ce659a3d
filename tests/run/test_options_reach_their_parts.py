"""Every knob reaches what it is for: of the optimiser, of members that follow, of sampling, of evaluation, of rewards,
of selection.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from at_once import at_once
from conftest import SMALL, arguments_for, build_cast, task_for
from cover import by_cover

from burnish.config.options import method_fields
from burnish.core.roles import ema, roles, snapshot, trained
from burnish.core.step import Notes, Step
from burnish.core.types import Clock, Group, Task, Trace, Turn, Verdict
from burnish.draw.replay import transitions
from burnish.engine.local import Request
from burnish.engine.sampling import restrict
from burnish.evals.evaluate import Evaluation, Interval, _judged, evaluate, interval, share
from burnish.methods.table import METHODS, load_all
from burnish.models.build import build
from burnish.models.model import Model
from burnish.models.optimiser import Optimiser
from burnish.models.publish import publish
from burnish.reward_functions.timed import TimedReward
from burnish.rollout.sample import greedy, sample
from burnish.select.filters import keep_best
from burnish.select.pairs import best_vs_worst, every_contrast, every_pair, given_pairs, ranked, scored_pairs
from burnish.select.remember import Store, turns_by
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.verifiers.final_answer import same_answer
from burnish.zoo.r_mcts import above_part

load_all()


def methods_with(name: str) -> list[str]:
    """The methods that have an argument of this name."""
    return sorted(method for method, entry in METHODS.items() if name in method_fields(entry))


# ------------------------------------------------------------------------------------------------------------ optimiser


def rate(step: int, of: int = 10, multiplier: float = 1.0, **settings: Any) -> float:
    module = torch.nn.Linear(2, 2)
    return Optimiser(module, replace(SMALL, lr=0.5, **settings), multiplier).lr(Clock(step, of))


def test_the_learning_rate_is_the_runs_times_the_roles_times_the_schedules() -> None:
    assert rate(3) == 0.5
    assert rate(3, multiplier=4.0) == 2.0
    assert [rate(step, lr_warmup=4) for step in range(6)] == [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]
    assert [rate(step, of=6, lr_warmup=2, lr_schedule="linear") for step in range(6)] == pytest.approx(
        [0.25, 0.5, 0.5, 0.375, 0.25, 0.125]
    )
    assert [rate(step, of=4, lr_schedule="cosine") for step in range(4)] == pytest.approx(
        [0.25 * (1 + math.cos(math.pi * step / 4)) for step in range(4)]
    )
    # half of the rate at the end: 0.5 x (0.5 + 0.5 x (1 + cos(pi x)) / 2)
    assert [rate(step, of=4, lr_schedule="cosine", lr_min=0.5) for step in (0, 2)] == pytest.approx([0.5, 0.375])
    # a share of 0.4 of 10 steps is 4 steps; a share that rounds to no step is none
    assert [rate(step, lr_warmup=0.4) for step in range(6)] == [rate(step, lr_warmup=4) for step in range(6)]
    assert rate(0, of=4, lr_warmup=0.1) == 0.5


def test_a_roles_learning_rate_moves_it_further(small_model: Path) -> None:
    """Adam's first step is the learning rate, times the sign of the gradient."""
    models = build(roles(critic=trained(outputs=1, lr=3.0)), small_model, replace(SMALL, clip=0.0), device="cpu")
    moved = {}
    for model in models:
        p = next(p for p in model.optimiser.named.values() if p.ndim >= 2)
        before = p.detach().clone()
        p.grad = torch.ones_like(p)
        model.optimiser.step(Clock(0, 10))
        moved[model.name] = float((before - p.detach()).mean())
    assert moved["policy"] == pytest.approx(SMALL.lr, rel=1e-3)
    assert moved["critic"] == pytest.approx(3 * SMALL.lr, rel=1e-3)


@at_once("name", methods_with("critic_lr"))
def test_a_methods_critic_learns_at_the_rate_that_it_is_given(name: str, other_model: Path) -> None:
    method = METHODS[name].build(task_for(name), **{**arguments_for(name, other_model), "critic_lr": 7.5})
    assert 7.5 in {role.lr for role in method.models.values() if role.outputs}
    assert method.models[method.product].lr != 7.5 or method.models[method.product].outputs


def test_weight_decay_shrinks_matrices_alone() -> None:
    module = torch.nn.Linear(3, 3)
    optimiser = Optimiser(module, replace(SMALL, lr=0.1, weight_decay=0.2))
    weight, bias = module.weight.detach().clone(), module.bias.detach().clone()
    module.weight.grad, module.bias.grad = torch.zeros(3, 3), torch.zeros(3)
    optimiser.step(Clock(0, 1))
    assert torch.allclose(module.weight, weight * (1 - 0.1 * 0.2)) and torch.equal(module.bias, bias)


@pytest.mark.parametrize(("clip", "left"), [(1.0, 1.0), (3.0, 3.0), (0.0, 5.0), (9.0, 5.0)])
def test_the_gradient_is_clipped_to_the_norm_that_is_asked_for(clip: float, left: float) -> None:
    module = torch.nn.Linear(2, 1, bias=False)
    optimiser = Optimiser(module, replace(SMALL, clip=clip))
    module.weight.grad = torch.tensor([[3.0, 4.0]])
    assert float(optimiser.clip()) == 5.0
    assert float(module.weight.grad.norm()) == pytest.approx(left, rel=1e-4)


def test_followers_follow_as_their_role_says(small_model: Path) -> None:
    models = build(roles(slow=ema("policy", 0.9), copy=snapshot("policy", every=2)), small_model, SMALL, device="cpu")
    weights = {model.name: next(model.module.parameters()) for model in models}
    start = weights["policy"].detach().clone()
    with torch.no_grad():
        weights["policy"].add_(1.0)
    publish(models, ("policy",), Clock(0, 10), Notes())
    assert torch.allclose(weights["slow"], start + 0.1, atol=1e-6)
    assert torch.equal(weights["copy"], start)
    publish(models, ("policy",), Clock(1, 10), Notes())
    assert torch.allclose(weights["slow"], start + 0.19, atol=1e-6)
    assert torch.equal(weights["copy"], weights["policy"])
    assert (models["slow"].version, models["copy"].version, models["policy"].version) == (2, 1, 2)


# ------------------------------------------------------------------------------------------------------------- sampling


@pytest.mark.parametrize(
    ("knobs", "kept"),
    [
        ({}, {0, 1, 2, 3}),
        ({"top_k": 2}, {1, 2}),
        ({"top_p": 0.45}, {2}),
        ({"top_p": 0.55}, {1, 2}),  # the token that crosses the share belongs to it
        ({"top_p": 0.85}, {0, 1, 2}),
        ({"top_p": 1e-9}, {2}),
        ({"min_p": 0.5}, {1, 2}),
        ({"min_p": 0.2, "top_k": 3}, {0, 1, 2}),
        ({"top_p": 0.45, "factor": 0.1}, {1, 2}),  # at a high temperature the share needs more tokens
    ],
)
def test_a_restriction_keeps_the_tokens_that_it_should(knobs: dict[str, float], kept: set[int]) -> None:
    logits = torch.tensor([[0.15, 0.3, 0.5, 0.05]]).log()
    told = {"factor": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, **knobs}
    found = restrict(logits, *(torch.tensor([told[name]]) for name in ("factor", "top_k", "top_p", "min_p")))
    assert set(found[0].isfinite().nonzero()[:, 0].tolist()) == kept
    assert torch.equal(found[0][sorted(kept)], logits[0][sorted(kept)])


@pytest.fixture(scope="module")
def policy(small_model: Path) -> Model:
    return build(roles(), small_model, SMALL, device="cpu")["policy"]


def question(text: str) -> Task:
    return Task("question", text, {"answer": "?"}, text)


def step_of(model: Model, small_model: Path, **settings: Any) -> Step:
    return Step(Clock(0, 10), build(roles(), small_model, SMALL, device="cpu"), replace(SMALL, **settings))


def test_a_rollouts_knobs_reach_the_sampler(small_model: Path, policy: Model) -> None:
    step, tasks = step_of(policy, small_model), [question("ab"), question("cd")]

    def said(rollout: Any) -> list[list[int]]:
        return [trace.turns[-1].tokens.tolist() for group in rollout.call(tasks, step) for trace in group.traces]

    best = said(greedy())
    assert said(sample(1, top_k=1)) == said(sample(1, top_p=1e-6)) == said(sample(1, temperature=0.0)) == best
    assert said(sample(1, temperature=1e-3)) == best
    assert said(sample(1)) != best
    few, many = (len({tuple(reply[:1]) for reply in said(sample(40, temperature=t))}) for t in (0.3, 3.0))
    assert few < many
    assert len({tuple(reply[:1]) for reply in said(sample(60, top_k=2))}) <= 4


def test_a_reply_ends_at_a_stop_string_and_keeps_it(policy: Model) -> None:
    plain = policy.generate([Request(policy.chat.prompt(question("ab")), 5, 12)])[0]
    text = policy.chat.text(plain.tokens)
    assert len(text) > 4
    stop = text[2:4]
    cut = policy.generate([Request(policy.chat.prompt(question("ab")), 5, 12, stop=(stop,))])[0]
    assert cut.stopped == "stop" and policy.chat.text(cut.tokens).endswith(stop)
    assert cut.tokens.tolist() == plain.tokens[: len(cut.tokens)].tolist() and len(cut.tokens) < len(plain.tokens)


@at_once("name", ["grpo", "ppo", "rloo", "raft", "lipo", "lite_ppo", "rso", "sppo", "spo_chain", "q_sharp"])
def test_a_method_samples_with_the_runs_top_k(name: str, small_model: Path, other_model: Path) -> None:
    method = METHODS[name].build(task_for(name), **{**arguments_for(name, other_model), "n": 2})
    phase = method.phases[0]
    settings = replace(SMALL, sampling=method.sampled(top_k=1))
    step = Step(Clock(0, 10), build_cast(method, small_model), settings)
    (group,) = phase.rollout.call([question("ab")], step)
    assert len(group.traces) > 1 and len({tuple(trace.tokens.tolist()) for trace in group.traces}) == 1


@pytest.mark.parametrize("name", by_cover(methods_with("n")))
def test_a_method_samples_as_many_replies_as_it_is_told(name: str, small_model: Path, other_model: Path) -> None:
    """One more reply is asked for: more is sampled for the same tasks."""
    built = arguments_for(name, other_model)
    n = built.get("n", method_fields(METHODS[name])["n"].default)
    counts = []
    for wanted in (n, n + 2):
        method = METHODS[name].build(task_for(name), **{**built, "n": wanted})
        models, seen = build_cast(method, small_model), 0
        for phase in method.phases:
            step = Step(Clock(0, 10), models, SMALL)
            tasks = phase.draw.call(step)
            if not tasks and not any(read.startswith("given:") for read in phase.rollout.reads):
                tasks = [task_for(name).task("train", 0)]  # it draws from a store, which is still empty
            seen += sum(len(group.traces) for group in phase.rollout.call(tasks, step)) if tasks else 0
        counts.append(seen)
    assert counts[1] > counts[0]


# ----------------------------------------------------------------------------------------------------------- evaluation


def test_the_interval_holds_95_percent() -> None:
    """Of 400 coins: a mean of 1/2 with the standard error 1/40, so that 1.96 of them lie on each side."""
    found = interval([0.0, 1.0] * 200)
    assert found.mean == 0.5
    assert 0.5 - found.low == pytest.approx(1.96 / 40, rel=0.1)
    assert found.high - 0.5 == pytest.approx(1.96 / 40, rel=0.1)


def test_pass_and_majority_ask_as_many_replies_as_they_say() -> None:
    right = ((False, False, True, True), (True, False, False, False))
    said = (("a", "a", "b", "b"), ("x", "y", "y", "y"))
    found = Evaluation(right, said, ((0.0,) * 4,) * 2, (), 1.0)
    assert found.pass_at(1).mean == pytest.approx((2 / 4 + 1 / 4) / 2)
    assert found.pass_at(2).mean == pytest.approx((1 - 1 / 6 + 1 - 3 / 6) / 2)
    assert found.pass_at(4).mean == 1.0
    # Subsets in order. k = 2: 1 of 6 (b b), 3 of 6 (x y, a tie). k = 3: 2 of 4 (a b b), none. k = 4: a tie, none.
    assert [found.majority_at(k).mean for k in (1, 2, 3, 4)] == pytest.approx([3 / 8, 1 / 3, 1 / 4, 0.0])


def test_majority_of_many_replies_is_estimated_from_subsets() -> None:
    said = ("a",) * 10 + ("b",) * 6
    found = Evaluation((tuple(text == "a" for text in said),), (said,), ((0.0,) * 16,), (), 1.0)
    exact = sum(math.comb(10, i) * math.comb(6, 5 - i) for i in (3, 4, 5)) / math.comb(16, 5)  # 76%
    assert found.majority_at(5).mean == pytest.approx(exact, abs=0.1)
    assert found.majority_at(16).mean == 1.0


def test_tasks_that_are_drawn_again_do_not_narrow_an_interval() -> None:
    values = [0.0, 1.0] * 8
    keys = [str(i) for i in range(16)]
    assert interval(values * 10, keys * 10) == interval(values)
    assert interval(values * 10).high < interval(values).high


def test_all_right_is_no_certainty() -> None:
    """Wilson: 20 of 20 gives 20 / (20 + 1.96^2) = 83.9%."""
    assert share([1.0] * 20) == Interval(1.0, pytest.approx(0.839, abs=5e-4), 1.0)
    assert share([0.0] * 20) == Interval(0.0, 0.0, pytest.approx(0.161, abs=5e-4))
    assert share([1.0] * 20, ["a", "b"] * 10).low == pytest.approx(2 / (2 + 1.96**2), abs=1e-3)
    assert share([0.0, 1.0] * 5) == interval([0.0, 1.0] * 5)


class Noted:
    """A task that notes which splits are asked for, and is right on held-out tasks alone."""

    name, summary, gives = "noted", "a test", frozenset({"answer"})

    def __init__(self, held: int = 5) -> None:
        self.held = held
        self.asked: list[tuple[str, int]] = []
        self.judged: list[str] = []

    def size(self, split: str) -> int | None:
        return self.held if split == "heldout" else 100

    def task(self, split: str, index: int) -> Task:
        self.asked.append((split, index))
        return Task("question", f"{split} {index}", {"answer": split}, f"{split}-{index}")

    def verify(self, task: Task, reply: str) -> Verdict:
        self.judged.append(task.key)
        right = task.given["answer"] == "heldout"
        return Verdict(float(right), right)


def test_evaluation_asks_held_out_tasks_and_no_others(small_model: Path) -> None:
    models = build(roles(), small_model, SMALL, device="cpu")
    task = Noted()
    found = evaluate(models, task, replace(SMALL, max_new_tokens=3), tasks=3, k=2)
    assert set(task.asked) == {("heldout", i) for i in range(3)}
    assert task.judged == [f"heldout-{i}" for i in range(3) for _ in range(2)]
    assert found.pass_at(1).mean == 1.0 and [len(row) for row in found.correct] == [2, 2, 2]
    assert len(evaluate(models, Noted(held=2), SMALL, tasks=9).correct) == 2


def test_evaluation_samples_by_its_own_temperature_and_seed(small_model: Path) -> None:
    models, task = build(roles(), small_model, SMALL, device="cpu"), source("sort")

    def said(**more: Any) -> list[str]:
        return [shown.reply for shown in evaluate(models, task, SMALL, tasks=6, **more).shown]

    assert said() == said()
    assert said(seed=1) != said()
    assert said(temperature=0.0) == said(temperature=0.0, seed=1) != said()


@pytest.mark.parametrize("name", sorted({"add", "sort", "reverse", "multiply", "countdown"}))
def test_no_held_out_task_is_a_training_task(name: str) -> None:
    task = source(name)
    held = {task.task("heldout", i).key for i in range(200)}
    assert not held & {task.task("train", i).key for i in range(2000)}


# -------------------------------------------------------------------------------------------------------------- rewards


@pytest.mark.parametrize("where", ["in this process", "in a process of its own"])
def test_half_a_reward_is_not_a_right_answer(where: str, tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text("def half(completions):\n    return [float(text) for text in completions]\n")
    timed = TimedReward(f"{tmp_path / 'reward.py'}:half", 60)
    task = rewarded(source("sort"), timed if "own" in where else lambda completions: [float(x) for x in completions])
    found = task.verdicts([question("x")] * 4, ["0", "0.5", "0.500001", "1"])
    assert [verdict.correct for verdict in found] == [False, False, True, True]
    assert [verdict.score for verdict in found] == [0.0, 0.5, 0.500001, 1.0]


def test_half_a_reward_of_a_game_is_not_a_win() -> None:
    """Evaluation of a task with an environment counts rewards above 0.5."""
    groups = [group(0.0, 0.5, 0.500001, 1.0)]
    rewards, right = _judged(source("guess"), groups, [[""] * 4])
    assert rewards == [[0.0, 0.5, 0.500001, 1.0]] and right == [[False, False, True, True]]


@pytest.mark.parametrize(
    ("said", "right", "same"),
    [
        ("0.1", "1/10", True),
        ("72.0", "72", True),
        ("1,000", "1000", True),
        ("10%", "0.1", True),
        ("0.333", "1/3", False),
        ("3.14", "3.1415", False),
        ("71.999999", "72", False),
        ("100000001", "100000000", False),
        ("1e2", "100", True),
        ("-5", "5", False),
        ("", "5", False),
    ],
)
def test_numbers_are_compared_exactly(said: str, right: str, same: bool) -> None:
    assert same_answer(said, right) == same


# ------------------------------------------------------------------------------------------------------------ selection


def group(*rewards: float) -> Group:
    traces = []
    for i, reward in enumerate(rewards):
        traces.append(Trace((Turn(torch.tensor([1]), "task"), Turn(torch.tensor([i + 5]), "policy")), i))
        traces[-1].scores["reward"] = reward
    return Group(question(str(rewards)), traces)


def test_a_tie_is_no_preference(small_model: Path, policy: Model) -> None:
    step = step_of(policy, small_model)
    kept = best_vs_worst().call([group(1.0, 1.0), group(0.5, 1.0, 0.0), group(0.0)], step)
    assert [[trace.scores["reward"] for trace in one.traces] for one in kept] == [[1.0, 0.0]]
    assert kept[0].pairs == [(0, 1)]
    assert step.notes.values()["dropped/no_preference"] == pytest.approx(2 / 3)
    (all_pairs,) = every_pair().call([group(0.0, 1.0, 1.0), group(1.0)], step)
    assert [(rewards(all_pairs)[a], rewards(all_pairs)[b]) for a, b in all_pairs.pairs] == [(1.0, 0.0), (1.0, 0.0)]
    assert not every_pair().call([group(1.0, 1.0, 1.0)], step)
    (contrasts,) = every_contrast().call([group(0.0, 1.0, 1.0), group(1.0)], step)
    assert contrasts.pairs == [(1, 2), (1, 0), (2, 0)]  # the better first, ties in the order of samples


def rewards(group: Group) -> list[float]:
    return [trace.scores["reward"] for trace in group.traces]


def test_whatever_a_rule_proposes_ties_never_make_pairs(small_model: Path, policy: Model) -> None:
    """Scores 1, 0, 1: of the pairs (0, 2), (1, 0) and (2, 1) only the last has a better and a worse reply, in that
    order.
    """
    part = scored_pairs(lambda scores: [(0, 2), (1, 0), (2, 1)], name="mine")
    (kept,) = part.call([group(1.0, 0.0, 1.0), group(2.0, 2.0, 2.0)], step_of(policy, small_model))
    assert [trace.index for trace in kept.traces] == [2, 1] and kept.pairs == [(0, 1)]


def test_pairs_of_the_data_and_ranked_lists(small_model: Path, policy: Model) -> None:
    step = step_of(policy, small_model)
    given, same = group(0.0, 0.0, 0.0), group(0.0, 0.0)
    for trace, tag in zip(given.traces, ("rejected", "demo", "chosen"), strict=True):
        trace.tags = frozenset({tag})
    same.traces = [replace(same.traces[0], tags=frozenset({tag})) for tag in ("chosen", "rejected")]
    (kept,) = given_pairs().call([given, same], step)
    assert kept.pairs == [(2, 0)] and len(kept.traces) == 3
    (listed,) = ranked().call([group(0.5, 2.0, 0.5, 1.0), group(1.0, 1.0)], step)
    assert [trace.index for trace in listed.traces] == [1, 3, 0] and listed.lists == [(0, 1, 2)]


def test_the_best_and_those_above_are_kept(small_model: Path, policy: Model) -> None:
    step = step_of(policy, small_model)
    (best,) = keep_best(2).call([group(0.0, 1.0, 0.5, 1.0)], step)
    assert [trace.index for trace in best.traces] == [1, 3]
    (over,) = above_part(0.5).call([group(0.5, 0.6, 1.0), group(0.5)], step)
    assert [trace.index for trace in over.traces] == [1, 2]


def played(*turns: int) -> Group:
    """A game for each number: that many turns by the policy, each answered by the environment."""
    traces = [Trace((Turn(torch.arange(2), "task"), *_turns(number)), k) for k, number in enumerate(turns)]
    return Group(Task("game", "q", {}, "q"), traces)


def _turns(number: int) -> tuple[Turn, ...]:
    return tuple(Turn(torch.arange(1), author) for _ in range(number) for author in ("policy", "env"))


def test_a_replay_of_transitions_counts_turns() -> None:
    """Games of 1 + 2, 2 and 1 turns into room for 4: the first group, 3 of the 6, goes. One too large alone stays."""
    store = Store("past", 4, turns_by("policy"))
    store.add([played(1, 2), played(2), played(1)])
    assert [store.size(one) for one in store.groups] == [2, 1]
    store.add([played(5)])
    assert [store.size(one) for one in store.groups] == [5] and store.written == 4


def test_transitions_are_drawn_alike() -> None:
    """Games of 1 and 3 turns, of one task or of two: the short one's transition is one of 4, not of 2."""
    for groups in ([played(1, 3)], [played(1), played(3)]):
        store = Store("past", 10, turns_by("policy"))
        store.add(groups)
        drawn = transitions(store, 4000).call(SimpleNamespace(clock=Clock(0, 1)))
        counts = Counter((len(task.given["trace"].turns), task.given["turn"]) for task in drawn)
        assert set(counts) == {(3, 1), (7, 1), (7, 3), (7, 5)}
        assert all(900 < number < 1100 for number in counts.values())  # 1000 expected, standard deviation 27


def test_a_store_keeps_the_newest() -> None:
    store = Store("past", capacity=3)
    for reward in range(5):
        store.add([group(float(reward))])
    assert [one.traces[0].scores["reward"] for one in store.groups] == [2.0, 3.0, 4.0]
    assert store.written == 5
    again = Store("past", capacity=3)
    again.load_state_dict(store.state_dict())
    again.add([group(5.0), group(6.0)])
    assert [one.traces[0].scores["reward"] for one in again.groups] == [4.0, 5.0, 6.0]
