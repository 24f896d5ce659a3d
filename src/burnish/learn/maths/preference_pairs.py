"""Losses on pairs relative to a reference: how the margin of two log-ratios becomes a number to minimise.

Symbols: w is preferred to l;  lr = log pi(y | x) - log ref(y | x), summed over the reply;  d = lr_w - lr_l;
r = beta lr, the implicit reward;  s = sigmoid. All tensors have shape [P] unless it is said otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish.learn.maths.chi2 import bounded_exp

Slope = Callable[[Tensor], Tensor]  # f'(u) of a divergence, as a function of log u


def ipo_squared(logratio_w: Tensor, logratio_l: Tensor, tau: float) -> Tensor:
    """IPO (Azar et al., arXiv 2310.12036, Eq. 17), per pair.

        L = (d - 1 / (2 tau))^2

    Log-probs are summed over the reply, as in the paper. d has a finite target, so certain preferences do not push the
    policy away from the reference without end.
    """
    return (logratio_w - logratio_l - 1 / (2 * tau)).square()


def ipo_soft(logratio_1: Tensor, logratio_2: Tensor, preference: Tensor, tau: float) -> Tensor:
    """IPO with the probability p that the first reply is preferred (Calandriello et al., arXiv 2403.08635), per pair.

        L = p (d - 1/(2 tau))^2 + (1 - p) (-d - 1/(2 tau))^2,   d = lr_1 - lr_2

    It equals (d - (2p - 1)/(2 tau))^2 plus a constant. p = 1 is `ipo_squared`.
    """
    d, target = logratio_1 - logratio_2, 1 / (2 * tau)
    return preference * (d - target).square() + (1 - preference) * (-d - target).square()


def hinge(logratio_w: Tensor, logratio_l: Tensor, gamma: float) -> Tensor:
    """max(0, 1 - gamma d): hinge-norm of RSO (arXiv 2309.06657) and pair-hinge of LiPO (arXiv 2402.01878), per pair."""
    return (1 - gamma * (logratio_w - logratio_l)).clamp(min=0)


def soft_logistic(margin: Tensor, preference: Tensor) -> Tensor:
    """Cross-entropy between a preference p and sigmoid(margin), per pair: -p log s(m) - (1 - p) log s(-m).

    p = 1 is DPO's loss; p = s(r_1 - r_2) with margin eta (lr_1 - lr_2) is DNO's (arXiv 2404.03715, Algorithm 1).
    """
    return -preference * F.logsigmoid(margin) - (1 - preference) * F.logsigmoid(-margin)


def exo_pair(logratio_w: Tensor, logratio_l: Tensor, beta: float, eps: float) -> Tensor:
    """EXO on pairs (Ji et al., arXiv 2402.00856), per pair: the reverse KL between two distributions over {w, l}.

        p = softmax(beta lr_w, beta lr_l),   q = (1 - eps, eps),   L = KL(p || q) = sum p log(p / q)

    The policy's side comes first: it seeks the mode. The forward KL(q || p) is DPO with label smoothing, up to a
    constant.
    """
    if not 0 < eps < 1:
        raise ValueError(f"EXO's eps is {eps}; it must lie between 0 and 1, for at 0 the divergence is infinite")
    margin = beta * (logratio_w - logratio_l)
    first, second = F.logsigmoid(margin), F.logsigmoid(-margin)
    return first.exp() * (first - math.log(1 - eps)) + second.exp() * (second - math.log(eps))


def discovered(logratio_w: Tensor, logratio_l: Tensor, beta: float, tau: float) -> Tensor:
    """DiscoPOP's log-ratio modulated loss (Lu et al., arXiv 2406.08414), per pair.

        x = beta d,   L = (1 - s(x / tau)) (-log s(x)) + s(x / tau) e^-x

    The gate gives pairs that are ordered right to the exponential loss, the others to the logistic one; its gradient
    counts.
    """
    x = beta * (logratio_w - logratio_l)
    gate = torch.sigmoid(x / tau)
    return -(1 - gate) * F.logsigmoid(x) + gate * bounded_exp(-x)


def apo_zero(logratio_w: Tensor, logratio_l: Tensor, beta: float) -> Tensor:
    """APO-zero (D'Oosterlinck et al., arXiv 2408.06266), per pair: 1 - s(r_w) + s(r_l).

    Raises the preferred reply and lowers the other, each with respect to the reference alone.
    """
    return 1 - torch.sigmoid(beta * logratio_w) + torch.sigmoid(beta * logratio_l)


def apo_down(logratio_w: Tensor, logratio_l: Tensor, beta: float) -> Tensor:
    """APO-down (arXiv 2408.06266), per pair: s(r_w) + 1 - s(r_w - r_l).

    Lowers both replies and keeps a gap between them, for a model that is better than its data. Where pi is the
    reference the gradient on the preferred reply is 0.
    """
    return torch.sigmoid(beta * logratio_w) + 1 - torch.sigmoid(beta * (logratio_w - logratio_l))


def nca_pair(logratio_w: Tensor, logratio_l: Tensor, beta: float) -> Tensor:
    """NCA on pairs (Chen et al., arXiv 2402.05369), per pair: -log s(r_w) - [log s(-r_w) + log s(-r_l)] / 2.

    Noise contrastive estimation of the reward itself, not of differences: the preferred reply's likelihood cannot fall.
    """
    chosen, rejected = beta * logratio_w, beta * logratio_l
    return -F.logsigmoid(chosen) - (F.logsigmoid(-chosen) + F.logsigmoid(-rejected)) / 2


def entropy_controlled(
    logp_w: Tensor, logp_l: Tensor, ref_w: Tensor, ref_l: Tensor, alpha: float, beta: float
) -> Tensor:
    """The margin of H-DPO (Omura et al., arXiv 2411.07595), per pair.

        m = alpha beta (log pi_w - log pi_l) - beta (log ref_w - log ref_l)

    The optimum of -log s(margin) is pi ~ ref^(1/alpha) exp(r / (alpha beta)): alpha below 1 sharpens it, above 1
    flattens it. alpha = 1 is DPO's margin.
    """
    return alpha * beta * (logp_w - logp_l) - beta * (ref_w - ref_l)


def reverse_kl(log_u: Tensor) -> Tensor:
    """f'(u) = log u + 1: the reverse KL, DPO's."""
    return log_u + 1


def forward_kl(log_u: Tensor) -> Tensor:
    """f'(u) = -1/u: the forward KL."""
    return -bounded_exp(-log_u)


def jensen_shannon(log_u: Tensor) -> Tensor:
    """f'(u) = log(2u / (1 + u)): the Jensen-Shannon divergence."""
    return math.log(2) + F.logsigmoid(log_u)


def alpha_divergence(alpha: float) -> Slope:
    """f'(u) = (1 - u^-alpha) / alpha, 0 < alpha < 1: between the reverse KL (0) and the forward KL (1)."""
    if not 0 < alpha < 1:
        raise ValueError(f"the alpha of an alpha-divergence is {alpha}; it must lie between 0 and 1")
    return lambda log_u: (1 - bounded_exp(-alpha * log_u)) / alpha


def f_margin(logratio_w: Tensor, logratio_l: Tensor, beta: float, slope: Slope) -> Tensor:
    """The margin of f-DPO (Wang et al., arXiv 2309.16240), per pair: beta f'(u_w) - beta f'(u_l).

    u = pi / ref of a reply.

    With `reverse_kl` it is DPO's. e^x is continued by its tangent above x = 10, so that long replies stay finite.
    """
    return beta * (slope(logratio_w) - slope(logratio_l))


def sppo_squared(logratio_w: Tensor, logratio_l: Tensor, wins_w: Tensor, wins_l: Tensor, eta: float) -> Tensor:
    """SPPO (Wu et al., arXiv 2405.00675), per pair, with the authors' factor 1/2.

        L = [ (lr_w - eta (P_w - 1/2))^2 + (lr_l - eta (P_l - 1/2))^2 ] / 2

    lr is relative to the previous iterate, P the chance to win against that iterate's own replies. Each reply has its
    own target, so the preferred one rises and the other falls independently.
    """
    return ((logratio_w - eta * (wins_w - 0.5)).square() + (logratio_l - eta * (wins_l - 0.5)).square()) / 2


def population_squared(gap: Tensor, anchor_gap: Tensor, target: Tensor | float) -> Tensor:
    """INPO and MNPO, per pair: ( log pi(w)/pi(l) - sum_j lambda_j log pi_j(w)/pi_j(l) - target )^2.

        gap         log pi(w) - log pi(l)
        anchor_gap  the same of the anchors, weighted: sum_j lambda_j (log pi_j(w) - log pi_j(l)), sum_j lambda_j = 1

    INPO (Zhang et al., arXiv 2407.00617): anchors the reference (tau / eta) and the previous iterate (1 - tau / eta),
    target 1 / (2 eta). MNPO (arXiv 2509.23102): a population of past iterates. One anchor with weight 1 is IPO with
    tau = eta.
    """
    return (gap - anchor_gap - target).square()


def of_equal_rank(u: Tensor, v: Tensor) -> Tensor:
    """For each u_i the v of the same rank: v_(rank of u_i), ranks in ascending order, ties by position. Shapes [n].

    The pairing of two samples by optimal transport in one dimension.
    """
    assert u.shape == v.shape
    rank = torch.empty_like(u, dtype=torch.long)
    rank[torch.argsort(u, stable=True)] = torch.arange(len(u), device=u.device)
    return torch.sort(v, stable=True).values[rank]


def regularised_tokens(margin: Tensor, rewarded_w: Tensor, rewarded_l: Tensor, alpha: float, beta: float) -> Tensor:
    """T-REG (Zhou et al., arXiv 2412.02685), per pair.

        L = -log s(m) + alpha sg[s(-m)] (R_w + R_l),   R(y) = -beta sum_t rhat_t log pi(y_t)

    m is DPO's margin, `rewarded` is sum_t rhat_t log pi(y_t) with the token rewards rhat that contrasted prompts
    give. The slope on a token's log pi is -s(-m) beta (1 + alpha rhat) in w and +s(-m) beta (1 - alpha rhat) in l.
    alpha = 0 is DPO.
    """
    return -F.logsigmoid(margin) - alpha * beta * torch.sigmoid(-margin).detach() * (rewarded_w + rewarded_l)


def sampled_weight(logp: Tensor, collision: Tensor) -> Tensor:
    """WPO's token weight in logs (Zhou et al., arXiv 2406.11827): log pi(y_t) - log sum_v pi(v)^2. Shape [N].

    sum_v pi(v)^2 is the probability that a sampled token has on average, so an on-policy reply weighs about 1.
    """
    return logp - collision.log()


def multi_objective(logratio_w: Tensor, logratio_l: Tensor, gap: Tensor, beta: float, weight: float) -> Tensor:
    """MODPO (Zhou et al., arXiv 2310.03708): -log s( [beta (lr_w - lr_l) - (1 - weight) gap] / weight ), per pair.

    gap  the other objective's reward of w less that of l, held. weight = 1 is `dpo_logistic`. Shapes: [P].
    """
    return -F.logsigmoid((beta * (logratio_w - logratio_l) - (1 - weight) * gap.detach().to(logratio_w)) / weight)


def step_apo(logratio_w: Tensor, logratio_l: Tensor, value_w: Tensor, value_l: Tensor, beta: float) -> Tensor:
    """Step-APO (CPL, Wang et al., arXiv 2409.08642), per pair of next steps in one state.

        L = -log s( r_w - V_w - r_l + V_l ),   V the value of the state after the step

    With no reward between siblings, V_w - V_l is the difference of their advantages. Equal values give step-level DPO.
    """
    return -F.logsigmoid(beta * (logratio_w - logratio_l) - (value_w - value_l))
