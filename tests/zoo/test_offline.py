"""Pairwise, sequence-level and offline policy gradients: numbers by hand, and what they become in their limits."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import build_cast, credited, doubled
from test_credit import TASK as QUESTION
from test_credit import scored, trace
from test_learn import TASK, gradients, same_gradient
from torch import Tensor, tensor

from burnish.core.method import Method, method
from burnish.core.roles import roles
from burnish.core.step import Notes
from burnish.core.types import Clock, Group
from burnish.credit.gae import token_rewards
from burnish.credit.group import group_relative
from burnish.credit.sequence import shared
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.maths.sequence import relative_reward_error
from burnish.learn.norms import seq_sum_mean
from burnish.learn.term import Live
from burnish.learn.terms import pg_reinforce, value_mse
from burnish.rollout.sample import sample
from burnish.score.verify import verify
from burnish.select.pairs import every_contrast
from burnish.zoo.a_lol import (
    a_lol,
    a_lol_ref_free,
    a_lol_seq,
    above_value,
    held_ratio,
    pg_sequence_ratio,
    pg_token_ratio,
    prioritised,
)
from burnish.zoo.copg import copg, copg_online
from burnish.zoo.p3o import p3o, p3o_separate, pairwise_joint, pairwise_separate
from burnish.zoo.rebel import rebel

SURROGATES = pytest.mark.parametrize("surrogate", [pairwise_joint, pairwise_separate])


def centred(n: int, coef: float) -> Method:
    """REINFORCE on whole replies with the group's mean as baseline, times a number."""
    return method(
        draw=prompts(TASK),
        rollout=sample(n),
        score=verify(TASK),
        credit=group_relative(std=False),
        learn=Learn(pg_reinforce(norm=seq_sum_mean, coef=coef)),
        models=roles(),
    )


# ------------------------------------------------------------------------------------------------------- REBEL and CoPG


def test_relative_reward_error_by_hand() -> None:
    """Log-ratios 0.5 and -0.5 differ by 1, rewards 3 and 1 by 2. Scale 1: (1 - 2)^2 = 1; scale 0.5:
    2.25; scale 2: 0.
    """
    a, b, r, s = tensor([0.5]), tensor([-0.5]), tensor([3.0]), tensor([1.0])
    found = [relative_reward_error(a, b, r, s, scale).item() for scale in (1.0, 0.5, 2.0)]
    assert found == pytest.approx([1.0, 2.25, 0.0])


def test_relative_reward_error_vanishes_at_the_regularised_optimum() -> None:
    """pi ~ ref exp(r / beta): the log-ratio is r / beta less a constant of the prompt, which the difference drops."""
    beta, reward = 0.3, tensor([1.0, -2.0, 0.7])
    logratio = reward / beta - 4.2
    assert torch.allclose(
        relative_reward_error(logratio, logratio.flip(0), reward, reward.flip(0), beta), torch.zeros(3), atol=1e-5
    )


def test_a_constant_gap_of_one_half_is_ipo() -> None:
    """(beta d - 1/2)^2 = beta^2 (d - 1/(2 beta))^2, IPO's loss times beta^2."""
    beta, d = 0.1, tensor([-3.0, 0.0, 5.0, 8.0])
    found = relative_reward_error(d, torch.zeros(4), torch.full((4,), 0.5), torch.zeros(4), beta)
    assert torch.allclose(found, beta**2 * (d - 1 / (2 * beta)).square())


def test_rebel_at_the_sampling_policy_is_reinforce_with_the_other_reply_as_baseline(small_model: Path) -> None:
    """d((1/eta) delta - dr)^2 = -(2/eta) dr grad delta, a mean over pairs. REINFORCE with the mean of two as baseline
    is
    -(1/2) [dr/2 grad l_1 - dr/2 grad l_2] = -(1/4) dr grad delta: REBEL is 8/eta times it."""
    same_gradient(rebel(TASK, n=2, eta=4.0, kl=0.0, updates=1), centred(2, 8 / 4.0), small_model, to=1e-5)


@pytest.mark.parametrize("n", [2, 4])
def test_copg_at_the_reference_is_reinforce_with_a_group_baseline(n: int, small_model: Path) -> None:
    """-(2 beta/(n-1)) sum_{i>j} (r_i - r_j) grad (l_i - l_j) = -(2 beta n/(n-1)) sum_i (r_i - mean) grad l_i: that is
    2 beta n^2/(n-1) times REINFORCE with the mean as baseline, averaged over the n replies."""
    same_gradient(copg_online(TASK, n=n, beta=0.1), centred(n, 0.2 * n * n / (n - 1)), small_model, to=1e-5)


def test_copg_is_rebel_with_eta_one_over_beta(small_model: Path) -> None:
    same_gradient(
        copg_online(TASK, n=2, beta=0.25),
        rebel(TASK, n=2, eta=4.0, kl=0.0, updates=1),
        small_model,
        to=1e-5,
    )


def test_copg_on_given_replies_by_a_slow_loop(small_model: Path) -> None:
    """At the reference: -2 beta dr grad (l - l'), mean over prompts, whoever wrote the replies."""
    built = copg(TASK, beta=0.1)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        found = gradients(models, phase.learn, groups, step)
        models["policy"].optimiser.zero()
        for group in groups:
            l, k = (reply_logp(models, t, "demo") for t in group.traces)  # noqa: E741
            dr = group.traces[0].scores["reward"] - group.traces[1].scores["reward"]
            (-2 * 0.1 * dr * (l - k) / len(groups)).backward()
        wanted = torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()])
        assert float((found - wanted).norm() / wanted.norm()) < 1e-5


def reply_logp(models, one, author: str) -> Tensor:
    return models["policy"].outputs([one.tokens], [one.by(author)], {"logp"})["logp"].sum()


# ------------------------------------------------------------------------------------------------------------------ P3O


def test_pairwise_joint_by_hand() -> None:
    """A = 0.5, eps 0.2, rho_b = 1. rho_a = 1.1: -1.1 x 0.5 log 1.1. rho_a = 1.5: d is cut at log 1.2: -1.5 x 0.5 log
    1.2.
    A = -0.5, rho_a = 1.5: nothing is cut, it hurts: 1.5 x 0.5 log 1.5."""
    a, b = tensor([1.1, 1.5, 1.5]).log(), torch.zeros(3)
    wanted = [-0.55 * math.log(1.1), -0.75 * math.log(1.2), 0.75 * math.log(1.5)]
    assert pairwise_joint(a, b, tensor([0.5, 0.5, -0.5]), 0.2).tolist() == pytest.approx(wanted)


def test_pairwise_separate_by_hand() -> None:
    """A = 0.5, eps 0.2, rho_a = 1.5, rho_b = 1: -1 x min(0.75, 0.6) - 1.5 x min(-0.5, -0.5) = -0.6 + 0.75 = 0.15."""
    assert pairwise_separate(tensor([1.5]).log(), torch.zeros(1), tensor([0.5]), 0.2).item() == pytest.approx(0.15)


@SURROGATES
def test_the_pairwise_gradient_inside_the_clip(surrogate) -> None:
    """-A rho_a rho_b on the first log-prob, the opposite on the second: A = 0.7, rho 1.1 and 0.95."""
    a, b = tensor([1.1]).log().requires_grad_(), tensor([0.95]).log().requires_grad_()
    surrogate(a, b, tensor([0.7]), 0.2).sum().backward()
    assert a.grad.item() == pytest.approx(-0.7 * 1.1 * 0.95)
    assert b.grad.item() == pytest.approx(0.7 * 1.1 * 0.95)


@SURROGATES
def test_the_pairwise_surrogate_is_the_same_when_the_replies_are_swapped(surrogate) -> None:
    a, b, adv = tensor([0.3, -0.5, 0.1]), tensor([-0.1, 0.4, 0.1]), tensor([1.0, -2.0, 0.5])
    assert torch.allclose(surrogate(a, b, adv, 0.2), surrogate(b, a, -adv, 0.2))


@SURROGATES
def test_the_pairwise_gradient_stops_outside_the_clip(surrogate) -> None:
    a, b = tensor([2.0]).log().requires_grad_(), tensor([0.5]).log().requires_grad_()
    surrogate(a, b, tensor([1.0]), 0.2).sum().backward()
    assert a.grad.item() == b.grad.item() == 0.0


@pytest.mark.parametrize("build", [p3o, p3o_separate])
def test_p3o_on_policy_is_half_the_difference(build, small_model: Path) -> None:
    """-(dr/2) grad (l_1 - l_2), a mean over pairs: twice -(1/4) dr grad (l_1 - l_2), REINFORCE with the mean of two."""
    same_gradient(build(TASK, n=2, kl=0.0, updates=1), centred(2, 2.0), small_model, to=1e-5)


# ---------------------------------------------------------------------------------------------------------------- A-LoL


def test_held_ratio_by_hand() -> None:
    """Ratios 0.05, 0.5, 1, 3 with eps 0.9: 0.1, 0.5, 1, 1.9, without gradient; eps 0 is 1 everywhere."""
    logratio = tensor([0.05, 0.5, 1.0, 3.0]).log().requires_grad_()
    assert held_ratio(logratio, 0.9).tolist() == pytest.approx([0.1, 0.5, 1.0, 1.9])
    assert not held_ratio(logratio, 0.9).requires_grad
    assert held_ratio(logratio, 0.0).tolist() == [1.0] * 4


def live(rows: list[int], outputs: dict[str, Tensor], **streams: Tensor) -> Live:
    return Live(
        outputs=outputs,
        streams=streams,
        row=tensor(rows),
        rows=max(rows) + 1,
        pairs=torch.zeros(0, 2, dtype=torch.long),
        lists=[],
        group=torch.zeros(max(rows) + 1, dtype=torch.long),
        clock=Clock(0, 1),
    )


def test_a_lol_by_hand() -> None:
    """One reply of two tokens, p = 0.5, 0.4, ref = 0.25, 0.5, A = 2. The reply's ratio: 2 x 0.8 = 1.6.
    a_lol: -2 x 1.6 x log 0.2.  seq, eps 0.9: the first token's ratio 2 is cut at 1.9: -2 (1.9 log 0.5 + 0.8 log 0.4).
    """
    outputs = {"logp": tensor([0.5, 0.4]).log()}
    streams = {"adv": tensor([2.0, 2.0]), "ref": tensor([0.25, 0.5]).log()}
    whole = pg_sequence_ratio(0.9).loss(live([0, 0], outputs, **streams))
    token = pg_token_ratio(0.9).loss(live([0, 0], outputs, **streams))
    assert whole.item() == pytest.approx(-3.2 * math.log(0.2))
    assert token.item() == pytest.approx(-2 * (1.9 * math.log(0.5) + 0.8 * math.log(0.4)))


def test_a_lol_at_the_reference_is_its_ref_free_variant(small_model: Path) -> None:
    """pi = ref: every ratio is 1."""
    found = []
    for build in (a_lol_ref_free, a_lol, a_lol_seq):
        built = build(TASK, n=2)
        models = doubled(build_cast(built, small_model))
        found += [gradients(models, p.learn, g, s) for p, g, s in credited(built, models) if p.name == "policy"]
    for other in found[1:]:
        assert float((found[0] - other).norm() / found[0].norm()) < 1e-5


def test_a_lol_learns_only_from_replies_above_the_value(small_model: Path) -> None:
    built = a_lol(TASK, n=2)
    for phase, groups, _ in credited(built, build_cast(built, small_model)):
        if phase.name == "policy":
            assert groups and all(t.scores["advantage"] > 0 for g in groups for t in g.traces)
            assert all(
                float(t.streams["adv"][-1]) == pytest.approx(t.scores["advantage"]) for g in groups for t in g.traces
            )


def test_above_value_by_hand() -> None:
    """The value is read at the reply's first token (position 2): 0.25; the score is 1."""
    one = trace(("task", 2), ("demo", 3), scores={"reward": 1.0})
    critic = SimpleNamespace(streams=lambda traces, masks, want, budget: [{"value": tensor([9, 9, 0.25, 9, 9])}])
    step = SimpleNamespace(models={"critic": critic}, settings=SimpleNamespace(token_budget=100))
    above_value().call([Group(QUESTION, [one])], step)
    assert one.scores["advantage"] == 0.75


def test_prioritised_draws_in_proportion_to_what_is_positive() -> None:
    """Advantages 3, 1, 0, -2: the first three times as often as the second, the others never."""
    counts = {3.0: 0, 1.0: 0}
    for number in range(1000):
        group = scored(0, 0, 0, 0)
        for one, advantage in zip(group.traces, (3.0, 1.0, 0.0, -2.0), strict=True):
            one.scores["advantage"] = advantage
        drawn = prioritised().call([group] * 1, SimpleNamespace(clock=Clock(number, 1000), notes=Notes()))
        assert len(drawn) == 1 and "drawn" in drawn[0].traces[0].tags
        counts[drawn[0].traces[0].scores["advantage"]] += 1
    assert counts[3.0] == pytest.approx(750, abs=50)


def test_prioritised_brings_nothing_where_nothing_is_positive() -> None:
    group = scored(0)
    group.traces[0].scores["advantage"] = -1.0
    assert prioritised().call([group], SimpleNamespace(clock=Clock(0, 1), notes=Notes())) == []


def test_the_value_regression_of_a_critic_with_one_output_by_hand() -> None:
    """Values 0.5 and 2 against 1 and 0: 0.25 and 4; with two columns against (1, 1) and (0, 0): summed."""
    single = value_mse("value", None, "returns").loss(
        live([0, 1], {"value": tensor([0.5, 2.0])}, returns=tensor([1.0, 0.0]))
    )
    double = value_mse("value", slice(0, 2), "returns").loss(
        live([0, 1], {"value": tensor([[0.5, 1.0], [2.0, 1.0]])}, returns=tensor([[1.0, 1.0], [0.0, 0.0]]))
    )
    assert single.tolist() == [0.25, 4.0] and double.tolist() == [0.25, 5.0]


# ---------------------------------------------------------------------------------------------------------------- parts


def test_every_contrast_by_hand() -> None:
    """Scores 0, 2, 1: (1, 2), (1, 0), (2, 0), the better first; a group of one gives none and goes."""
    step = SimpleNamespace(notes=Notes())
    kept = every_contrast().call([scored(0, 2, 1), scored(5)], step)
    assert [group.pairs for group in kept] == [[(1, 2), (1, 0), (2, 0)]]


def test_outcome_and_shared_by_hand() -> None:
    one = trace(("task", 2), ("policy", 2), ("env", 1), scores={"reward": 0.5})
    for part in (token_rewards(kl=None), shared("reward", "adv")):
        part.call([Group(QUESTION, [one])], SimpleNamespace())
    assert one.streams["reward"].isnan().tolist() == [True, True, False, False, True]
    assert one.streams["reward"][2:4].tolist() == [0.0, 0.5]
    assert one.streams["adv"].tolist() == [0.5] * 5
