"""AIPO and trajectory balance: numbers derived by hand, and what each becomes where its idea is switched off."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import SMALL, build_cast, credited, doubled
from test_learn import TASK, gradients, same_gradient
from torch import tensor

from burnish.core.method import Method, method
from burnish.core.roles import roles
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit.group import group_relative
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.maths.surrogates import held_ratio
from burnish.learn.norms import seq_sum_mean
from burnish.learn.terms import pg_reinforce
from burnish.rollout.recalled import recalled
from burnish.rollout.sample import sample
from burnish.run.pipeline import loop_as_set
from burnish.score.verify import verify
from burnish.select.remember import Store
from burnish.zoo.copg import copg_online
from burnish.zoo.llamarl import aipo
from burnish.zoo.tba import past_groups, tba, trajectory_balance


def reinforce(n: int) -> Method:
    return method(
        draw=prompts(TASK),
        rollout=sample(n),
        score=verify(TASK),
        credit=group_relative(std=False),
        learn=Learn(pg_reinforce(norm=seq_sum_mean)),
        models=roles(),
    )


def test_aipo_bounds_the_weight_above_only() -> None:
    """Two tokens, A = 1: pi/mu is 0.6/0.1 = 6, cut to 2, and 0.1/0.5 = 0.2, kept. d L / d logp = -w A = -2 and -0.2."""
    logp = tensor([math.log(0.6), math.log(0.1)], requires_grad=True)
    mu = tensor([math.log(0.1), math.log(0.5)])
    held_ratio(logp, mu, torch.ones(2), 0.0, 2.0).sum().backward()
    torch.testing.assert_close(logp.grad, tensor([-2.0, -0.2]))


def test_aipo_on_fresh_samples_is_reinforce(small_model: Path) -> None:
    same_gradient(aipo(TASK, n=4), reinforce(4), small_model, to=1e-5)


@pytest.mark.parametrize("older", ({"lag": 2}, {"chunk": 3}), ids=["ahead", "in chunks"])
def test_aipo_corrects_for_stale_samples(older: dict, small_model: Path) -> None:
    """Its gradient weighs each token by pi/mu of the weights that wrote it: as a slow loop over tokens does."""
    built = aipo(TASK, n=4, rho=1.5)
    settings = replace(SMALL, lr=3e-2, **older)
    models = build_cast(built, small_model, settings)
    *_, last = loop_as_set(built, models, settings, steps=4)
    assert last.metrics["staleness"] == 2 if "lag" in older else last.metrics["staleness"] > 0
    models = doubled(models)
    groups = last.groups["main"]
    plan = built.phases[0].learn
    found = gradients(models, plan, groups, Step(Clock(0, 1), models, settings))
    models["policy"].optimiser.zero()
    traces, cut = [trace for group in groups for trace in group.traces], 0
    for trace in traces:
        mask = trace.by("policy")
        logp = models["policy"].outputs([trace.tokens], [mask], {"logp"})["logp"]
        for t, (now, born) in enumerate(zip(logp, trace.turns[-1].logp, strict=True)):
            weight = min(math.exp(float(now.detach() - born)), 1.5)
            cut += weight == 1.5
            (-weight * float(trace.streams["adv"][mask][t]) * now / len(traces)).backward(retain_graph=True)
    slow = torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()])
    assert cut > 0
    assert float((found - slow).norm() / slow.norm()) < 1e-6


def test_trajectory_balance_by_hand() -> None:
    """log-ratios 0.5 and 0, rewards 1 and 0, beta 2: d = 0.5 - 0.5 = 0 and 0, so L = 0; with beta 1: d = -0.5 and 0,
    mean -0.25, L = (0.25^2 + 0.25^2) / 2 = 0.0625, and d L / d log_ratio = 2 (d - mean d) / 2 = -0.25 and 0.25."""
    log_ratio, reward = tensor([0.5, 0.0], requires_grad=True), tensor([1.0, 0.0])
    assert trajectory_balance(log_ratio, reward, 2.0).item() == 0.0
    loss = trajectory_balance(log_ratio, reward, 1.0)
    loss.backward()
    assert loss.item() == pytest.approx(0.0625)
    torch.testing.assert_close(log_ratio.grad, tensor([-0.25, 0.25]))


def test_balance_holds_where_the_policy_is_the_tilted_reference_whoever_wrote_the_replies() -> None:
    """pi = ref exp(r / beta) / Z gives 0, for any replies and any Z: nothing asks for their behaviour log-probs."""
    reward = tensor([1.0, 0.0, 0.25, 0.25])
    for log_z in (0.0, 3.0):
        assert float(trajectory_balance(reward / 0.5 - log_z, reward, 0.5)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("n", (2, 4))
def test_tba_on_the_newest_replies_is_copg(n: int, small_model: Path) -> None:
    """The gradients differ by (n - 1) / (n beta)^2: sum over pairs (d_i - d_j)^2 = n sum_i (d_i - mean d)^2."""
    found = []
    for built in (tba(TASK, n=n, beta=0.5, recent=1.0), copg_online(TASK, n=n, beta=0.5)):
        models = doubled(build_cast(built, small_model))
        with torch.no_grad():  # away from the reference
            for p in models["policy"].module.parameters():
                p.mul_(1.1)
        ((phase, groups, step),) = credited(built, models)
        found.append(gradients(models, phase.learn, groups, step))
    scaled = found[1] * (n - 1) / (n * 0.5) ** 2
    assert float((found[0] - scaled).norm() / scaled.norm()) < 1e-5


def test_past_groups_are_the_newest_or_the_better_rewarded() -> None:
    """50 prompts, 3 replies to each in two groups: 200 draws of 5, each the newest with a chance of 1/4, else any, 2
    replies.
    """
    store = Store("replay", 200)
    for reply, reward in ((3, 0.0), (4, 3.0), (5, 0.0), (4, 3.0)):  # the last says again what the second said
        store.add([_group(f"task {i}", reward, reply) for i in range(50)])
    newest, drawn = 0, Counter()
    for number in range(200):
        step = SimpleNamespace(clock=Clock(number, 200), settings=replace(SMALL, prompts=5))
        groups = [task.given["group"] for task in past_groups(store, 0.25, 2).call(step)]
        assert len(groups) == 5
        newest += sum(len(group.traces) == 1 and int(group.task.key.split()[1]) >= 45 for group in groups)
        for group in (group for group in groups if len(group.traces) == 2):
            drawn.update(int(trace.tokens[-1]) for trace in group.traces)
            assert len({int(trace.tokens[-1]) for trace in group.traces}) == 2  # no reply twice
    assert 209 <= newest <= 291  # 250 expected of 1000, standard deviation 14
    old = 1000 - newest
    assert drawn[3] + drawn[4] + drawn[5] == 2 * old
    # without replacement by weights 1, e^3, 1: reply 4 is left out with the chance 2 / (2 + e^3) x 1 / (1 + e^3) =
    # 0.0043
    assert drawn[4] > 0.98 * old and abs(drawn[3] - drawn[5]) < 0.2 * old
    with pytest.raises(ValueError, match="between 0 and 1"):
        past_groups(store, 1.5, 2)


def test_past_groups_take_any_prompt_alike() -> None:
    """Not the better rewarded ones: reward chooses among the replies to a prompt, as in the authors' code."""
    store = Store("replay", 100)
    store.add([_group(f"task {i}", 9.0 if i < 5 else 0.0) for i in range(50)])
    step = [SimpleNamespace(clock=Clock(k, 200), settings=replace(SMALL, prompts=5)) for k in range(200)]
    keys = Counter(task.key for one in step for task in past_groups(store, 0.0, 4).call(one))
    assert sum(keys.values()) == 1000 and 60 <= sum(keys[f"task {i}"] for i in range(5)) <= 140  # 100 expected


def test_beta_falls_in_a_straight_line() -> None:
    (term,) = tba(TASK, beta=0.5, beta_end=0.1).phases[1].learn.terms
    (other,) = tba(TASK, beta=0.3).phases[1].learn.terms
    live = SimpleNamespace(
        logp=tensor([0.2, 0.7]),
        ref=tensor([0.1, 0.1]),
        reward=tensor([1.0, 0.0]),
        group=tensor([0, 0]),
        per_row=lambda x: x,
        clock=Clock(2, 5),
    )
    torch.testing.assert_close(term.loss(live), other.loss(live))  # half-way: 0.3


def test_recalled_replies_are_as_they_were_and_streams_are_not() -> None:
    group = _group("a task", 1.0)
    group.traces[0].streams["ref"] = torch.zeros(3)
    (again,) = recalled().call([Task("past", "a task", {"group": group}, "a task")], None)  # type: ignore[arg-type]
    assert again.traces[0].turns is group.traces[0].turns
    assert again.traces[0].scores == {"reward": 1.0} and not again.traces[0].streams
    again.traces[0].scores["reward"] = 0.0
    assert group.traces[0].scores["reward"] == 1.0


def _group(key: str, reward: float, said: int = 3) -> Group:
    prompt = Turn(tensor([1, 2]), "task")
    reply = Turn(tensor([said]), "policy", torch.zeros(1), tensor([0]), prompt)
    return Group(Task("question", key, {}, key), [Trace((prompt, reply), scores={"reward": reward})])
