"""Loss maths against numbers derived by hand, and the identities that tie methods together."""

from __future__ import annotations

import math

import pytest
import torch
from torch import tensor

from burnish.learn import maths


def log(*p: float) -> torch.Tensor:
    return tensor([math.log(x) for x in p])


def test_clipped_surrogate_by_hand() -> None:
    """old p = 0.5. Ratios 1.4, 0.6, 1.1 with eps 0.2:
    A = +1, r = 1.4: min(1.4, 1.2) = 1.2;  A = -1, r = 1.4: min(-1.4, -1.2) = -1.4 (not clipped: it hurts)
    A = -1, r = 0.6: min(-0.6, -0.8) = -0.8;  A = +2, r = 1.1: 2.2. Losses are their negatives.
    """
    logp, old = log(0.7, 0.7, 0.3, 0.55), log(0.5, 0.5, 0.5, 0.5)
    adv = tensor([1.0, -1.0, -1.0, 2.0])
    found = maths.clipped_surrogate(logp, old, adv, 0.2, 0.2)
    assert torch.allclose(found, tensor([-1.2, 1.4, 0.8, -2.2]))


def test_dual_clip_by_hand() -> None:
    """r = 5, A = -1: min(-5, -1.2) = -5, but not below c A = -3. A > 0 is untouched."""
    found = maths.clipped_surrogate(log(0.5, 0.5), log(0.1, 0.1), tensor([-1.0, 1.0]), 0.2, 0.2, dual=3.0)
    assert torch.allclose(found, tensor([3.0, -1.2]))


def test_clip_higher_by_hand() -> None:
    """eps 0.2 / 0.28: r = 1.4, A = 1 is cut at 1.28."""
    assert maths.clipped_surrogate(log(0.7), log(0.5), tensor([1.0]), 0.2, 0.28).item() == pytest.approx(-1.28)


def test_on_policy_the_clipped_surrogate_has_reinforce_gradient() -> None:
    logp = log(0.2, 0.7, 0.9).requires_grad_()
    adv = tensor([1.0, -2.0, 0.5])
    (a,) = torch.autograd.grad(maths.clipped_surrogate(logp, logp.detach(), adv, 0.2, 0.2).sum(), logp)
    (b,) = torch.autograd.grad(maths.reinforce(logp, adv).sum(), logp)
    assert torch.allclose(a, b)


def test_kl_estimates_by_hand() -> None:
    """p = 0.5, ref = 0.25: d = log 0.5. k1 = log 2; k2 = (log 2)^2 / 2; k3 = 0.5 + log 2 - 1."""
    p, q = log(0.5), log(0.25)
    assert maths.k1(p, q).item() == pytest.approx(math.log(2))
    assert maths.k2(p, q).item() == pytest.approx(math.log(2) ** 2 / 2)
    assert maths.k3(p, q).item() == pytest.approx(math.log(2) - 0.5)


def test_k1_and_k3_are_unbiased_and_never_or_sometimes_negative() -> None:
    """Summed over the whole vocabulary with weights pi, both give the exact KL."""
    p, q = tensor([0.5, 0.3, 0.2]), tensor([0.2, 0.2, 0.6])
    exact = (p * (p / q).log()).sum()
    assert torch.allclose((p * maths.k1(p.log(), q.log())).sum(), exact)
    assert torch.allclose((p * maths.k3(p.log(), q.log())).sum(), exact)
    assert (maths.k3(p.log(), q.log()) >= 0).all()


def test_kl_gradients_in_expectation() -> None:
    """Over samples of pi: the gradient of k2 is the reverse KL's, of k3 the forward KL's, of k1 nothing."""
    z, q = tensor([0.3, -0.2, 0.5], requires_grad=True), tensor([0.2, 0.2, 0.6])
    logp = z.log_softmax(0)
    p = logp.exp().detach()

    def grad(loss: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(loss, z, retain_graph=True)[0]

    reverse = grad((logp.exp() * (logp - q.log())).sum())
    forward = grad((q * (q.log() - logp)).sum())
    assert torch.allclose(grad((p * maths.k2(logp, q.log())).sum()), reverse, atol=1e-6)
    assert torch.allclose(grad((p * maths.k3(logp, q.log())).sum()), forward, atol=1e-6)
    assert torch.allclose(grad((p * maths.k1(logp, q.log())).sum()), torch.zeros(3), atol=1e-6)


def test_dpo_by_hand() -> None:
    """Log-ratios 2 and -1, beta 0.1: -log sigmoid(0.3) = log(1 + e^-0.3) = 0.554355. At equality it is log 2."""
    assert maths.dpo_logistic(tensor([2.0]), tensor([-1.0]), 0.1).item() == pytest.approx(0.554355, abs=1e-6)
    assert maths.dpo_logistic(tensor([0.4]), tensor([0.4]), 0.1).item() == pytest.approx(math.log(2))


def test_cdpo_is_dpo_without_smoothing_and_symmetric_at_one_half() -> None:
    w, l = tensor([2.0]), tensor([-1.0])  # noqa: E741
    smooth = maths.dpo_logistic(w, l, 0.1, 0.2)
    assert smooth.item() == pytest.approx(
        0.8 * maths.dpo_logistic(w, l, 0.1).item() + 0.2 * maths.dpo_logistic(l, w, 0.1).item()
    )
    assert torch.allclose(maths.dpo_logistic(w, l, 0.1, 0.5), maths.dpo_logistic(l, w, 0.1, 0.5))


def test_bradley_terry_by_hand() -> None:
    """r = 1.5 and 0.5: -log sigmoid(1) = 0.313262; centred with 0.01: + 0.01 * 4."""
    w, l = tensor([1.5]), tensor([0.5])  # noqa: E741
    assert maths.bradley_terry(w, l).item() == pytest.approx(0.313262, abs=1e-6)
    assert maths.bradley_terry(w, l, 0.01).item() == pytest.approx(0.353262, abs=1e-6)


def test_dpo_with_a_flat_reference_is_bradley_terry_of_beta_log_probs() -> None:
    w, l = tensor([-3.0]), tensor([-4.5])  # noqa: E741
    assert torch.allclose(maths.dpo_logistic(w, l, 0.3), maths.bradley_terry(0.3 * w, 0.3 * l))


def test_phi_weight_by_hand_and_without_gradient() -> None:
    """p (1 - p): 0.25 at one half, 0.09 at 0.1 and at 0.9. The gradient of the weighted nll is -phi alone."""
    logp = log(0.5, 0.1, 0.9).requires_grad_()
    weight = maths.phi_weight(logp)
    assert torch.allclose(weight, tensor([0.25, 0.09, 0.09]))
    (g,) = torch.autograd.grad(maths.nll(logp, weight).sum(), logp)
    assert torch.allclose(g, -weight)


def test_value_losses_by_hand() -> None:
    """V 1.0, old 0.5, target 2, eps 0.2: V_clip 0.7; max(1, 1.69) / 2 = 0.845. Without a limit: half
    the square, 0.5.
    """
    v, old, target = tensor([1.0]), tensor([0.5]), tensor([2.0])
    assert maths.clipped_squared_error(v, old, target, 0.2).item() == pytest.approx(0.845)
    assert maths.clipped_squared_error(v, old, target, float("inf")).item() == pytest.approx(0.5)
    assert maths.squared_error(v, target).item() == pytest.approx(1.0)


def test_generalised_jsd_by_hand() -> None:
    """P = (1/2, 1/2), Q = (1/4, 3/4), beta 1/2: M = (3/8, 5/8);
    KL(P||M) = 1/2 log(4/3) + 1/2 log(4/5) = 0.032269; KL(Q||M) = 1/4 log(2/3) + 3/4 log(6/5) = 0.035375; mean 0.033822.
    """
    p, q = log(0.5, 0.5)[None], log(0.25, 0.75)[None]
    assert maths.generalised_jsd(q, p, 0.5).item() == pytest.approx(0.033822, abs=1e-6)


def test_generalised_jsd_ends_are_the_two_kls_and_near_the_ends_it_tends_to_them() -> None:
    p, q = tensor([[0.1, 0.5, -0.3]]), tensor([[0.4, -0.2, 0.0]])
    lp, lq = p.log_softmax(-1), q.log_softmax(-1)
    forward, reverse = (lp.exp() * (lp - lq)).sum(-1), (lq.exp() * (lq - lp)).sum(-1)
    assert torch.allclose(maths.generalised_jsd(q, p, 0.0), forward)
    assert torch.allclose(maths.generalised_jsd(q, p, 1.0), reverse)
    small = 1e-3
    assert torch.allclose(maths.generalised_jsd(q, p, small) / small, forward, rtol=2e-2)
    assert torch.allclose(maths.generalised_jsd(q, p, 1 - small) / small, reverse, rtol=2e-2)
    assert torch.allclose(maths.generalised_jsd(p, p, 0.3), torch.zeros(1), atol=1e-7)


def test_generalised_jsd_refuses_a_beta_outside() -> None:
    with pytest.raises(ValueError, match="beta is 1.5; GKD's beta lies between 0"):
        maths.generalised_jsd(torch.zeros(1, 2), torch.zeros(1, 2), 1.5)
