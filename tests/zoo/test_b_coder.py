"""A language model as a dueling Q-function: by hand, in its limits, and in its two stages."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from conftest import build_cast, credited, doubled
from test_learn import TASK, gradients
from test_offline import live
from torch import tensor

from burnish.core.method import method
from burnish.core.roles import roles
from burnish.credit.claims import claim
from burnish.draw.tasks import demos
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_sum_mean
from burnish.learn.terms import imitate
from burnish.rollout.given import given
from burnish.rollout.sample import join, sample
from burnish.zoo.b_coder import (
    b_coder,
    capped_value,
    dueling_advantage,
    dueling_policy,
    dueling_value,
    no_advantage_lost,
    soft_abs,
    td_error,
)

LOGITS = tensor([[0.0, 1.0, 3.0], [2.0, 0.0, 1.0]])


def row(**outputs: torch.Tensor):
    """Two tokens of one row: 1 then 0 were said, the fixed policy would have said 2 and 2; -0.3 at the end."""
    streams = {"token": tensor([1, 0]), "backup": tensor([2.0, 2.0]), "reward": tensor([0.0, -0.3])}
    return live([0, 0], outputs, **streams)


def test_the_backup_by_hand() -> None:
    """alpha 1, gamma 1/2, the critic says 0, so V = 1 - softabs(0) = 1.

    A_0 = 1 - 3 = -2, Q_0 = -1;   A_1 = 2 - 2 = 0, Q_1 = 1;   Q(s_1, a^ = 2) = (1 - 2) + 1 = 0, nothing follows token 1
    errors  0 + 1/2 * 0 - (-1) = 1   and   -0.3 - 1 = -1.3;   squares 1 and 1.69
    """
    expected = tensor([1.0, 1.69])
    mine = dueling_policy(1.0, 0.5, 1.0).loss(row(logits=LOGITS, **{"critic.value": torch.zeros(2)}))
    torch.testing.assert_close(mine, expected)
    theirs = dueling_value(1.0, 0.5, 1.0).loss(row(value=torch.zeros(2), **{"policy.logits": LOGITS}))
    torch.testing.assert_close(theirs, expected)
    lost = no_advantage_lost(2.0, coef=1.0).loss(row(logits=LOGITS))
    torch.testing.assert_close(lost, tensor([4.0, 0.0]))


def test_what_follows_is_held() -> None:
    """Raw critic outputs 1 and 2: the gradient of the first error is that of -V(s_0) alone."""
    raw = tensor([1.0, 2.0], requires_grad=True)
    losses = dueling_value(1.0, 1.0, 1.0).loss(row(value=raw, **{"policy.logits": LOGITS}))
    (grad,) = torch.autograd.grad(losses[0], raw)
    assert grad[1] == 0.0 and grad[0] != 0.0


def test_values_never_exceed_the_largest_reward() -> None:
    """softabs(x) = |x| / 2 + ln(1 + e^-|x|) - ln 2."""
    x = tensor([-30.0, -1.0, 0.0, 1.0, 30.0])
    torch.testing.assert_close(soft_abs(x), x.abs() / 2 + torch.log1p((-x.abs()).exp()) - math.log(2))
    assert capped_value(x, 1.0).max() == 1.0


def test_softmax_of_q_is_the_language_model() -> None:
    value, alpha = 0.7, 0.3
    q = torch.stack([dueling_advantage(LOGITS, torch.full((2,), a), alpha) for a in range(3)], -1) + value
    torch.testing.assert_close(torch.softmax(q / alpha, -1), torch.softmax(LOGITS, -1))


def test_without_a_future_it_is_regression() -> None:
    reward, zero = tensor([0.2, -1.0]), torch.zeros(2)
    torch.testing.assert_close(td_error(reward, zero, tensor([0.5, 0.5]), tensor([9.0, 9.0]), 0.0), reward - 0.5)


def test_without_advantages_it_is_imitation(small_model: Path) -> None:
    """alpha = 0: neither Q nor the lost advantage sees the logits, and the cross-entropy stands alone."""
    built = b_coder(TASK, alpha=0.0, ce=1.0, value_steps=1)
    models = doubled(build_cast(built, small_model))
    _, (phase, groups, step) = credited(built, models)
    mine = gradients(models, phase.learn, groups, step)
    plain = method(
        draw=demos(TASK),
        rollout=join(given("demo"), sample(1, who="policy")),
        credit=claim("sft", "demo"),
        learn=Learn(imitate(norm=seq_sum_mean)),
        models=roles(),
    )
    models = doubled(build_cast(plain, small_model))
    ((phase, groups, step),) = credited(plain, models)
    theirs = gradients(models, phase.learn, groups, step)
    assert float((mine - theirs).norm() / theirs.norm()) < 1e-9


def test_the_value_learns_first() -> None:
    with pytest.raises(ValueError, match="option 'value_steps' is 0; it must be at least 1"):
        b_coder(TASK, value_steps=0)
