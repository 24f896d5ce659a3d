"""Preference losses against numbers derived by hand, and the identities that tie them together."""

from __future__ import annotations

import math

import pytest
import torch
from torch import tensor

from burnish.learn.maths import dpo_logistic
from burnish.learn.maths import preference_free as free
from burnish.learn.maths import preference_lists as lists
from burnish.learn.maths import preference_noise as noise
from burnish.learn.maths import preference_pairs as pairs
from burnish.learn.maths import preference_unpaired as unpaired
from burnish.zoo.alphapo import alphapo_margin
from burnish.zoo.aot import of_equal_rank
from burnish.zoo.bco import bco_cross_entropy
from burnish.zoo.brain import brain_kl
from burnish.zoo.direct_preference_ppo import conservative_contrast
from burnish.zoo.discopop import discovered_loss
from burnish.zoo.dno import soft_logistic
from burnish.zoo.exo import exo_list, exo_pair
from burnish.zoo.f_dpo import alpha_divergence, f_margin, forward_kl, jensen_shannon, reverse_kl
from burnish.zoo.h_dpo import entropy_controlled_margin
from burnish.zoo.ipo_md import ipo_soft
from burnish.zoo.lcpo import trust, trusted_loss
from burnish.zoo.lipo import lipo_lambda
from burnish.zoo.nca import nca_list, nca_pair
from burnish.zoo.pessimistic_mle_rlhf import plackett_luce
from burnish.zoo.pro import pro_ranking
from burnish.zoo.rdpo import unbiased
from burnish.zoo.rso import hinge_loss
from burnish.zoo.sigmoid_apo import apo_down_loss, apo_zero_loss
from burnish.zoo.slic import slic_hinge
from burnish.zoo.sppo import sppo_squared
from burnish.zoo.t_reg import regularised_tokens
from burnish.zoo.wpo import sampled_weight

LOG2, LOG3 = math.log(2), math.log(3)
W, L = tensor([LOG3, 0.4, -1.0], dtype=torch.float64), tensor([0.0, 0.9, -2.5], dtype=torch.float64)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def number(x: torch.Tensor) -> float:
    return float(x.detach().reshape(-1)[0])


def test_ipo_by_hand() -> None:
    """d = 2 - 1 = 1, tau = 0.25: the target is 1 / 0.5 = 2, (1 - 2)^2 = 1."""
    assert number(pairs.ipo_squared(tensor([2.0]), tensor([1.0]), 0.25)) == pytest.approx(1.0)


def test_ipo_with_soft_labels_by_hand() -> None:
    """d = 1, tau = 0.25, p = 0.75: 0.75 (1 - 2)^2 + 0.25 (-1 - 2)^2 = 0.75 + 2.25 = 3; p = 1 is IPO itself."""
    one = tensor([1.0]), tensor([0.0])
    assert number(ipo_soft(*one, tensor([0.75]), 0.25)) == pytest.approx(3.0)
    assert torch.equal(ipo_soft(W, L, torch.ones(3), 0.3), pairs.ipo_squared(W, L, 0.3))


def test_soft_ipo_is_a_regression_up_to_a_constant() -> None:
    """Its slope is that of (d - (2p - 1) / (2 tau))^2."""
    w, p, tau = W.clone().requires_grad_(), tensor([0.2, 0.5, 0.9]), 0.4
    (soft,) = torch.autograd.grad(ipo_soft(w, L, p, tau).sum(), w)
    (plain,) = torch.autograd.grad((w - L - (2 * p - 1) / (2 * tau)).square().sum(), w)
    assert torch.allclose(soft, plain)


def test_hinge_by_hand() -> None:
    """gamma = 0.5: d = 1 gives 1 - 0.5 = 0.5; d = 3 gives max(0, -0.5) = 0."""
    assert hinge_loss(tensor([1.0, 3.0]), tensor([0.0, 0.0]), 0.5).tolist() == [0.5, 0.0]


def test_soft_logistic_by_hand() -> None:
    """margin log 3: s = 3/4. p = 2/3: -(2/3) log(3/4) - (1/3) log(1/4)."""
    found = number(soft_logistic(tensor([LOG3]), tensor([2 / 3])))
    assert found == pytest.approx((2 / 3) * math.log(4 / 3) + math.log(4) / 3)
    assert torch.allclose(soft_logistic(0.3 * (W - L), torch.ones(3)), dpo_logistic(W, L, 0.3))


def test_exo_by_hand() -> None:
    """beta d = log 3: p = (3/4, 1/4), q = (1/2, 1/2): 3/4 log(3/2) + 1/4 log(1/2)."""
    found = number(exo_pair(tensor([LOG3]), tensor([0.0]), 1.0, 0.5))
    assert found == pytest.approx(0.75 * math.log(1.5) - 0.25 * LOG2)
    with pytest.raises(ValueError, match="between 0 and 1"):
        exo_pair(W, L, 1.0, 0.0)


def test_exo_is_zero_where_the_policy_has_the_labels_odds() -> None:
    """beta d = log((1 - eps) / eps) gives p = q; the forward KL, DPO with label smoothing, has the same optimum."""
    eps = 0.1
    d = tensor([math.log(0.9 / 0.1)], requires_grad=True)
    assert number(exo_pair(d, tensor([0.0]), 1.0, eps)) == pytest.approx(0.0, abs=1e-6)
    (slope,) = torch.autograd.grad(dpo_logistic(d, tensor([0.0]), 1.0, eps).sum(), d)
    assert number(slope) == pytest.approx(0.0, abs=1e-6)


def test_discopop_by_hand() -> None:
    """x = 0: the gate is 1/2: (log 2 + 1) / 2. x = log 3, tau = 1: gate 3/4: log(4/3) / 4 + (3/4)(1/3)."""
    found = discovered_loss(tensor([0.0, LOG3]), tensor([0.0, 0.0]), 1.0, 1.0)
    assert found.tolist() == pytest.approx([(LOG2 + 1) / 2, math.log(4 / 3) / 4 + 0.25])


def test_discopop_with_a_sharp_gate() -> None:
    """tau -> 0: the exponential loss where x > 0, DPO's where x < 0."""
    found = discovered_loss(tensor([0.5, -0.5]), tensor([0.0, 0.0]), 1.0, 1e-6)
    assert found.tolist() == pytest.approx([math.exp(-0.5), -math.log(sigmoid(-0.5))])


def test_discopop_begins_on_a_bump() -> None:
    """Slope at x = 0: g'(0) (1 - log 2) - 1/4 - 1/2 with g'(0) = 1 / (4 tau): +0.78 for tau 0.05, -0.67 for 1."""
    for tau in (0.05, 1.0):
        x = tensor([0.0], dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(discovered_loss(x, tensor([0.0]), 1.0, tau).sum(), x)
        assert number(slope) == pytest.approx((1 - LOG2) / (4 * tau) - 0.75)


def test_apo_by_hand() -> None:
    """r_w = log 3, r_l = 0: zero: 1 - 3/4 + 1/2 = 3/4; down: 3/4 + 1 - 3/4 = 1."""
    pair = tensor([LOG3]), tensor([0.0])
    assert number(apo_zero_loss(*pair, 1.0)) == pytest.approx(0.75)
    assert number(apo_down_loss(*pair, 1.0)) == pytest.approx(1.0)


def test_apo_down_leaves_the_chosen_reply_alone_at_the_reference() -> None:
    w, l = tensor([0.0], requires_grad=True), tensor([0.0], requires_grad=True)  # noqa: E741
    down = torch.autograd.grad(apo_down_loss(w, l, 0.1).sum(), (w, l))
    assert number(down[0]) == pytest.approx(0.0, abs=1e-8) and number(down[1]) > 0
    zero = torch.autograd.grad(apo_zero_loss(w, l, 0.1).sum(), (w, l))
    assert number(zero[0]) < 0 < number(zero[1])


def test_nca_by_hand() -> None:
    """r_w = log 3, r_l = 0: -log(3/4) - [log(1/4) + log(1/2)] / 2 = log(4/3) + (3/2) log 2."""
    found = number(nca_pair(tensor([LOG3]), tensor([0.0]), 1.0))
    assert found == pytest.approx(math.log(4 / 3) + 1.5 * LOG2)


def test_entropy_controlled_margin_by_hand_and_as_dpo() -> None:
    """beta 0.5, alpha 0.8: 0.4 (-1 - -3) - 0.5 (-2 - -2.5) = 0.8 - 0.25 = 0.55. alpha = 1 is DPO's margin."""
    given = [tensor([x]) for x in (-1.0, -3.0, -2.0, -2.5)]
    assert number(entropy_controlled_margin(*given, 0.8, 0.5)) == pytest.approx(0.55)
    plain = 0.5 * ((given[0] - given[2]) - (given[1] - given[3]))
    assert torch.allclose(entropy_controlled_margin(*given, 1.0, 0.5), plain)


def test_the_optimum_of_h_dpo() -> None:
    """The margin is the true reward gap where pi ~ ref^(1/alpha) e^(r / (alpha beta))."""
    ref, reward, alpha, beta = tensor([-1.0, -2.0]), tensor([0.7, 0.1]), 0.6, 0.3
    logp = torch.log_softmax(ref / alpha + reward / (alpha * beta), 0)
    found = entropy_controlled_margin(logp[0], logp[1], ref[0], ref[1], alpha, beta)
    assert float(found) == pytest.approx(0.6, abs=1e-6)


def test_slopes_of_divergences_by_hand() -> None:
    """u = 3: log 3 + 1; -1/3; log(6/4) = log 1.5; alpha 1/2: 2 (1 - 1/sqrt 3)."""
    u = tensor([LOG3])
    assert number(reverse_kl(u)) == pytest.approx(LOG3 + 1)
    assert number(forward_kl(u)) == pytest.approx(-1 / 3)
    assert number(jensen_shannon(u)) == pytest.approx(math.log(1.5))
    assert number(alpha_divergence(0.5)(u)) == pytest.approx(2 * (1 - 1 / math.sqrt(3)))


def test_f_dpo_with_the_reverse_kl_is_dpo() -> None:
    margin = f_margin(W, L, 0.2, reverse_kl)
    assert torch.allclose(-torch.nn.functional.logsigmoid(margin), dpo_logistic(W, L, 0.2))


def test_the_alpha_divergence_lies_between_the_kls() -> None:
    """alpha -> 0: log u (the reverse KL up to a constant); alpha -> 1: 1 - 1/u (the forward KL up to a constant)."""
    u = tensor([-0.7, 0.3], dtype=torch.float64)
    assert torch.allclose(alpha_divergence(1e-6)(u), reverse_kl(u) - 1, atol=1e-5)
    assert torch.allclose(alpha_divergence(1 - 1e-6)(u), forward_kl(u) + 1, atol=1e-5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        alpha_divergence(1.0)


def test_sppo_by_hand() -> None:
    """eta = 10, P = (0.9, 0.1): targets +-4. lr = (1, -2): [(1 - 4)^2 + (-2 + 4)^2] / 2 = 6.5."""
    found = sppo_squared(tensor([1.0]), tensor([-2.0]), tensor([0.9]), tensor([0.1]), 10.0)
    assert number(found) == pytest.approx(6.5)


def test_inpo_by_hand() -> None:
    """eta 0.1, tau 0.05: h = 3 - 0.5 * 1 - 0.5 * 2 = 1.5, the target is 5: 3.5^2 = 12.25."""
    gap, anchors = tensor([3.0]), 0.5 * tensor([1.0]) + 0.5 * tensor([2.0])
    assert number(pairs.population_squared(gap, anchors, 1 / 0.2)) == pytest.approx(12.25)


def test_one_anchor_is_ipo() -> None:
    logp_w, logp_l, ref_w, ref_l = W - 1, L - 2, tensor([-1.0]).double(), tensor([-2.0]).double()
    found = pairs.population_squared(logp_w - logp_l, (ref_w - ref_l).expand(3), 1 / (2 * 0.3))
    assert torch.allclose(found, pairs.ipo_squared(logp_w - ref_w, logp_l - ref_l, 0.3))


def test_replies_of_equal_rank() -> None:
    """u = (5, 1, 3) has ranks (2, 0, 1); v sorted is (10, 20, 30): (30, 10, 20). One pair is matched with itself."""
    assert of_equal_rank(tensor([5.0, 1.0, 3.0]), tensor([20.0, 30.0, 10.0])).tolist() == [30.0, 10.0, 20.0]
    assert of_equal_rank(tensor([5.0]), tensor([7.0])).tolist() == [7.0]


def test_t_reg_by_hand() -> None:
    """m = log 3, s(-m) = 1/4. rewarded -2 and 1, alpha 0.5, beta 0.1: log(4/3) - 0.5 * 0.1 * (1/4)(-1)."""
    found = regularised_tokens(tensor([LOG3]), tensor([-2.0]), tensor([1.0]), 0.5, 0.1)
    assert number(found) == pytest.approx(math.log(4 / 3) + 0.0125)
    assert torch.allclose(regularised_tokens(0.1 * (W - L), W, L, 0.0, 0.1), dpo_logistic(W, L, 0.1))


def test_t_regs_slopes_on_tokens() -> None:
    """-s(-m) beta (1 + alpha rhat) on a chosen token, s(-m) beta (1 - alpha rhat) on a rejected one."""
    alpha, beta, rhat = 0.5, 0.2, tensor([0.3, -0.4])
    logp = tensor([-1.0, -2.0], requires_grad=True)  # one token each, the reference at -1.5 both
    margin = beta * (logp[0] - logp[1])
    loss = regularised_tokens(margin, rhat[0] * logp[0], rhat[1] * logp[1], alpha, beta)
    (slope,) = torch.autograd.grad(loss, logp)
    held = sigmoid(-float(margin.detach()))
    assert slope.tolist() == pytest.approx(
        [-held * beta * (1 + alpha * 0.3), held * beta * (1 + alpha * 0.4)], rel=1e-5
    )


def test_wpo_weights_by_hand() -> None:
    """pi = (1/2, 1/4, 1/4): sum of squares 3/8. A token of probability 1/2 weighs (1/2) / (3/8) = 4/3."""
    assert number(sampled_weight(tensor([0.5]).log(), tensor([3 / 8])).exp()) == pytest.approx(4 / 3)


def test_simpo_and_alphapo_by_hand() -> None:
    """p_w = 1/2, p_l = 1/4. SimPO, beta 2, gamma 1: 2 log 2 - 1. AlphaPO, alpha 1: p^-1 = 2 and 4: 2 (4 - 2) - 1 = 3.
    alpha = -1 is linear: reward p - 1: 2 (1/2 - 1/4) - 1 = -1/2."""
    means = tensor([-LOG2]), tensor([-2 * LOG2])
    assert number(free.simpo_margin(*means, 2.0, 1.0)) == pytest.approx(2 * LOG2 - 1)
    assert number(alphapo_margin(*means, 1.0, 2.0, 1.0)) == pytest.approx(3.0)
    assert number(alphapo_margin(*means, -1.0, 2.0, 1.0)) == pytest.approx(-0.5)


def test_alphapo_with_alpha_zero_is_simpo() -> None:
    means = tensor([-0.3, -1.2]).double(), tensor([-0.8, -0.1]).double()
    exact, near = (alphapo_margin(*means, alpha, 2.5, 0.5) for alpha in (0.0, 1e-7))
    assert torch.equal(exact, free.simpo_margin(*means, 2.5, 0.5))
    assert torch.allclose(exact, near, atol=1e-6)


def test_orpo_by_hand() -> None:
    """p_w = 3/4: odds 3; p_l = 1/2: odds 1. -log s(log 3) = log(4/3)."""
    found = free.orpo_odds(tensor([math.log(0.75)]), tensor([math.log(0.5)]))
    assert number(found) == pytest.approx(math.log(4 / 3), rel=1e-5)
    assert torch.isfinite(free.log_odds(tensor([0.0]))).all()


def test_slic_by_hand() -> None:
    """delta 1: log pi = -2 and -2.5: 1 + 2 - 2.5 = 0.5; -2 and -4: max(0, -1) = 0."""
    assert slic_hinge(tensor([-2.0, -2.0]), tensor([-2.5, -4.0]), 1.0).tolist() == [0.5, 0.0]


def test_conservative_contrast_by_hand_and_as_simpo() -> None:
    """S = (-1, -2), lam 1/2: -1 + 1 = 0: log 2. lam 1 is SimPO with beta 1/T and no margin."""
    assert number(conservative_contrast(tensor([-1.0]), tensor([-2.0]), 0.5)) == pytest.approx(LOG2)
    simpo = -torch.nn.functional.logsigmoid(free.simpo_margin(W, L, 1 / 0.7, 0.0))
    assert torch.allclose(conservative_contrast(W, L, 1.0, 0.7), simpo)


def losses(margin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    zero = torch.zeros_like(margin)
    return dpo_logistic(margin, zero, 1.0), dpo_logistic(zero, margin, 1.0)


def test_label_noise_by_hand() -> None:
    """margin log 3: l(w,l) = log(4/3), l(l,w) = log 4. eps 1/4: smoothed (3/4) log(4/3) + (1/4) log 4;
    unbiased [ (3/4) log(4/3) - (1/4) log 4 ] / (1/2)."""
    kept, flipped = losses(tensor([LOG3]))
    assert number(noise.smoothed(kept, flipped, 0.25)) == pytest.approx(0.75 * math.log(4 / 3) + 0.25 * math.log(4))
    assert number(unbiased(kept, flipped, 0.25)) == pytest.approx(1.5 * math.log(4 / 3) - 0.5 * math.log(4))
    assert torch.equal(unbiased(kept, flipped, 0.0), kept)
    with pytest.raises(ValueError, match="flip rate"):
        unbiased(kept, flipped, 0.5)


def test_robust_dpo_is_unbiased() -> None:
    """Its mean over flipped labels is the loss of the true label; that of the smoothed loss is not."""
    kept, flipped = losses(tensor([0.8, -0.3]))
    eps = 0.2
    mean = (1 - eps) * unbiased(kept, flipped, eps) + eps * unbiased(flipped, kept, eps)
    assert torch.allclose(mean, kept)
    smoothed = (1 - eps) * noise.smoothed(kept, flipped, eps) + eps * noise.smoothed(flipped, kept, eps)
    assert not torch.allclose(smoothed, kept)


def test_trust_by_hand() -> None:
    """p = 3/4, eta 0.9: 0.675 / (0.675 + 0.025) = 27/28. M-step: -(27/28) log(3/4) - (1/28) log(1/4)."""
    kept, flipped = losses(tensor([LOG3]))
    chance = noise.label_chance(kept, flipped)
    assert number(chance) == pytest.approx(0.75)
    confidence = trust(chance, 0.9)
    assert number(confidence) == pytest.approx(27 / 28)
    expected = 27 / 28 * math.log(4 / 3) + math.log(4) / 28
    assert number(trusted_loss(kept, flipped, confidence)) == pytest.approx(expected, rel=1e-5)


def test_the_m_step_is_a_mixture_for_dpo_and_not_for_ipo() -> None:
    c = tensor([0.7, 0.4, 0.9]).double()
    kept, flipped = losses(W - L)
    assert torch.allclose(trusted_loss(kept, flipped, c), c * kept + (1 - c) * flipped)
    assert torch.allclose(trusted_loss(kept, flipped, torch.ones(3)), kept), "a label that is trusted is DPO"
    kept, flipped = pairs.ipo_squared(W, L, 0.5), pairs.ipo_squared(L, W, 0.5)
    assert not torch.allclose(trusted_loss(kept, flipped, c), c * kept + (1 - c) * flipped)
    assert torch.allclose(noise.label_chance(kept, flipped), torch.sigmoid(2 * (W - L) / 0.5)), "s(2 h / tau)"


def test_kto_by_hand() -> None:
    """beta 1, z0 1, lr = 1 + log 3: desirable 1 - 3/4 = 1/4; undesirable 1 - s(-log 3) = 3/4, times 2."""
    lr, good = tensor([1 + LOG3, 1 + LOG3]), tensor([True, False])
    found = unpaired.kto_value(lr, good, tensor([1.0, 1.0]), 1.0, 1.0, 2.0)
    assert found.tolist() == pytest.approx([0.25, 1.5])


def test_bco_by_hand() -> None:
    """beta 1, delta 1: logit log 3: -log(3/4) if desirable; -2 log(1/4) if not, with weight 2."""
    lr, good = tensor([1 + LOG3, 1 + LOG3]), tensor([True, False])
    found = bco_cross_entropy(lr, good, tensor([1.0, 1.0]), tensor([2.0, 2.0]), 1.0)
    assert found.tolist() == pytest.approx([math.log(4 / 3), 2 * math.log(4)])


def test_lipo_by_hand() -> None:
    """K = 2, psi = (1, 0), s = (0, log 3): the worse reply ranks first. Delta = (2 - 1)(1/log 2 - 1/log 3),
    loss log(1 + e^log 3) = log 4."""
    delta = 1 / LOG2 - 1 / LOG3
    found = lipo_lambda(tensor([0.0, LOG3]), tensor([1.0, 0.0]), 1.0)
    assert float(found) == pytest.approx(delta * math.log(4), rel=1e-5)


def test_lipo_with_two_replies_is_a_multiple_of_dpo_and_pair_logistic_is_dpo() -> None:
    scores, labels = tensor([0.4, -0.2]).double(), tensor([0.8, 0.3]).double()
    dpo = dpo_logistic(scores[:1], scores[1:], 0.05)[0]
    delta = (2**0.8 - 2**0.3) * (1 / LOG2 - 1 / LOG3)
    assert float(lipo_lambda(scores, labels, 0.05)) == pytest.approx(delta * float(dpo))
    assert float(lists.pair_logistic(scores, labels, 0.05)) == pytest.approx(float(dpo))
    assert float(plackett_luce(0.05 * scores)) == pytest.approx(float(dpo))


def test_equal_labels_are_not_compared() -> None:
    assert float(lipo_lambda(tensor([0.4, -0.2]), tensor([1.0, 1.0]), 1.0)) == 0.0


def test_plackett_luce_by_hand() -> None:
    """s = (log 3, log 2, 0): 3/6 first, then 2/3: -log(1/2) - log(2/3) = log 3."""
    assert float(plackett_luce(tensor([LOG3, LOG2, 0.0]))) == pytest.approx(LOG3, rel=1e-5)


def test_pro_by_hand() -> None:
    """m = (-1, -2, -3), r = (2, 1, 0). k = 1: 1/T = (2, 1, 2) on (-1, -2, -3) = (-2, -2, -6);
    k = 2: 1/T = (1, 1) on (-2, -3). log(2 + e^-4) + log(1 + e^-1)."""
    found = pro_ranking(tensor([-1.0, -2.0, -3.0]), tensor([2.0, 1.0, 0.0]))
    assert float(found) == pytest.approx(math.log(2 + math.exp(-4)) + math.log(1 + math.exp(-1)), rel=1e-5)


def test_pro_leaves_out_ties() -> None:
    """r = (1, 0, 0): only the first place excludes anything; a constant list is 0."""
    m = tensor([-1.0, -2.0, -3.0])
    first = math.log(math.exp(-1) + math.exp(-2) + math.exp(-3)) + 1
    assert float(pro_ranking(m, tensor([1.0, 0.0, 0.0]))) == pytest.approx(first, rel=1e-5)
    assert float(pro_ranking(m, torch.ones(3))) == 0.0


def test_brain_by_hand_and_its_gradient() -> None:
    """q' = p_sft = pi: b = (1/2, 1/2). r = (log 3, 0), gamma 1: a = (3/4, 1/4): KL = 3/4 log(3/2) + 1/4 log(1/2).
    The gradient is b - a = (-1/4, 1/4)."""
    logp = tensor([-1.0, -2.0], requires_grad=True)
    same = logp.detach()
    loss = brain_kl(logp, same, same, tensor([LOG3, 0.0]), 1.0)
    assert float(loss.detach()) == pytest.approx(0.75 * math.log(1.5) - 0.25 * LOG2, rel=1e-5)
    assert torch.autograd.grad(loss, logp)[0].tolist() == pytest.approx([-0.25, 0.25])


def test_brain_with_two_replies_and_certain_rewards_is_dpo() -> None:
    """q' = p_sft and a = (1, 0): -log b_1 = -log s(lr_1 - lr_2), DPO with beta 1."""
    logp, ref = tensor([-1.0, -2.0]).double(), tensor([-1.5, -1.8]).double()
    found = brain_kl(logp, ref, ref, tensor([1e4, 0.0]), 1.0)
    assert float(found) == pytest.approx(number(dpo_logistic((logp - ref)[:1], (logp - ref)[1:], 1.0)))


def test_nca_on_two_rewards_is_nca_on_a_pair() -> None:
    lr = tensor([0.4, -0.7]).double()
    found = nca_list(lr, tensor([1.0, 0.0]), 0.3, 1e-4)
    assert float(found) == pytest.approx(number(nca_pair(lr[:1], lr[1:], 0.3)))


def test_nca_list_by_hand() -> None:
    """r = (0, 0), any c: -log(1/2) - log(1/2) = 2 log 2."""
    assert float(nca_list(torch.zeros(2), tensor([0.3, 0.1]), 1.0, 1.0)) == pytest.approx(2 * LOG2)


def test_exo_on_two_rewards_is_exo_on_a_pair() -> None:
    """softmax(r / beta_r) = (1 - eps, eps) for a gap of beta_r log((1 - eps)/eps)."""
    lr, gap = tensor([0.4, -0.7]).double(), 0.5 * math.log(0.9 / 0.1)
    found = exo_list(lr, tensor([gap, 0.0]).double(), 0.3, 0.5)
    assert float(found) == pytest.approx(number(exo_pair(lr[:1], lr[1:], 0.3, 0.1)))
