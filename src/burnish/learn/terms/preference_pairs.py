"""Terms on pairs of replies: each is a loss of learn/maths/preference_*.py in a `pair_term`.

`on` names the authors of the replies: "demo" for given pairs, "policy", "past" or "ref" for sampled ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core.schedules import Schedule, at
from burnish.learn.maths import preference_free as free
from burnish.learn.maths import preference_noise as noise
from burnish.learn.maths import preference_pairs as maths
from burnish.learn.maths.preference import Replies, dpo_logistic, logistic
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.compared import note_pairs, pair_term, replies_of
from burnish.learn.terms.rows import row_mean


def ipo(tau: Schedule, *, on: Authors = "policy") -> Term:
    """(d - 1/(2 tau))^2 on the pairs."""
    return pair_term(lambda w, r, tau: maths.ipo_squared(w.logratio, r.logratio, tau), beta=tau, on=on)


def hinge(gamma: Schedule, *, on: Authors = "policy") -> Term:
    """max(0, 1 - gamma d) on the pairs."""
    return pair_term(lambda w, r, gamma: maths.hinge(w.logratio, r.logratio, gamma), beta=gamma, on=on)


def exo(beta: Schedule, eps: float, *, on: Authors = "policy") -> Term:
    """The reverse KL between the policy's odds and the smoothed label."""
    return pair_term(lambda w, r, beta: maths.exo_pair(w.logratio, r.logratio, beta, eps), beta=beta, on=on)


def discovered(beta: Schedule, tau: float, *, on: Authors = "policy") -> Term:
    """DiscoPOP's gated mixture of the logistic and the exponential loss."""
    return pair_term(lambda w, r, beta: maths.discovered(w.logratio, r.logratio, beta, tau), beta=beta, on=on)


def apo_zero(beta: Schedule, *, on: Authors = "policy") -> Term:
    """1 - s(r_w) + s(r_l) on the pairs."""
    return pair_term(lambda w, r, beta: maths.apo_zero(w.logratio, r.logratio, beta), beta=beta, on=on)


def apo_down(beta: Schedule, *, on: Authors = "policy") -> Term:
    """s(r_w) + 1 - s(r_w - r_l) on the pairs."""
    return pair_term(lambda w, r, beta: maths.apo_down(w.logratio, r.logratio, beta), beta=beta, on=on)


def nca(beta: Schedule, *, on: Authors = "policy") -> Term:
    """NCA's classification of each reply of a pair against noise."""
    return pair_term(lambda w, r, beta: maths.nca_pair(w.logratio, r.logratio, beta), beta=beta, on=on)


def entropy_controlled(beta: Schedule, alpha: float, *, on: Authors = "policy") -> Term:
    """H-DPO: the logistic loss of alpha beta (log pi_w - log pi_l) - beta (log ref_w - log ref_l)."""

    def loss(w: Replies, r: Replies, beta: float) -> Tensor:
        refs = w.logp - w.logratio, r.logp - r.logratio
        return logistic(maths.entropy_controlled(w.logp, r.logp, *refs, alpha, beta))

    return pair_term(loss, beta=beta, on=on)


def divergence(beta: Schedule, slope: maths.Slope, *, on: Authors = "policy") -> Term:
    """f-DPO: the logistic loss of beta (f'(u_w) - f'(u_l))."""
    return pair_term(lambda w, r, beta: logistic(maths.f_margin(w.logratio, r.logratio, beta, slope)), beta=beta, on=on)


def robust(beta: Schedule, eps: float, *, on: Authors = "policy") -> Term:
    """rDPO: the unbiased loss for labels that are wrong with chance eps."""

    def loss(w: Replies, r: Replies, beta: float) -> Tensor:
        kept, flipped = dpo_both_ways(w, r, beta)
        return noise.unbiased(kept, flipped, eps)

    return pair_term(loss, beta=beta, on=on)


def trusted(beta: Schedule, *, on: Authors = "policy") -> Term:
    """RE-PO's M-step on DPO, the confidence in each label read from stream "confidence"."""

    def loss(w: Replies, r: Replies, beta: float) -> Tensor:
        return noise.trusted(*dpo_both_ways(w, r, beta), w["confidence"])

    return pair_term(loss, beta=beta, marks=("confidence",), on=on)


def dpo_both_ways(w: Replies, r: Replies, beta: float) -> tuple[Tensor, Tensor]:
    """DPO's loss of the label and of its opposite."""
    return dpo_logistic(w.logratio, r.logratio, beta), dpo_logistic(r.logratio, w.logratio, beta)


def transported(beta: Schedule, *, on: Authors = "policy") -> Term:
    """AOT on pairs: the logistic loss of beta (u - v'), u = log pi_w - log pi_l, v' the stream "matched"."""
    return pair_term(
        lambda w, r, beta: logistic(beta * (w.logp - r.logp - w["matched"])), beta=beta, marks=("matched",), on=on
    )


def weighted_tokens(beta: Schedule, *, on: Authors = "policy", weight: str = "weight") -> Term:
    """DPO on log-ratios whose tokens are weighted by a stream (TGDPO)."""
    return pair_term(lambda w, r, beta: dpo_logistic(w.logratio, r.logratio, beta), beta=beta, weight=weight, on=on)


def desensitised(beta: Schedule, *, on: Authors = "policy", weight: str = "weight") -> Term:
    """LD-DPO: DPO with the policy's log-probs weighted token by token and the reference's in full."""

    def loss(w: Replies, r: Replies, beta: float) -> Tensor:
        return logistic(beta * ((w.logp - w["ref"]) - (r.logp - r["ref"])))

    return pair_term(loss, beta=beta, anchor=None, streams=("ref",), weight=weight, on=on)


def token_regularised(beta: Schedule, alpha: float, *, on: Authors = "policy") -> Term:
    """T-REG: DPO and a language-model loss weighted by the token rewards in stream "token_reward"."""

    def loss(live: Live) -> Tensor:
        w, r, now = *pair_sides(live), at(beta, live.clock)
        note_pairs(live, w, r, now)
        rewarded = live.per_row(live.token_reward * live.logp)
        margin = now * (w.logratio - r.logratio)
        return maths.regularised_tokens(margin, rewarded[live.pairs[:, 0]], rewarded[live.pairs[:, 1]], alpha, now)

    needs = ("logp", "entropy")
    return Term(
        name="reply", on=on, unit="pair", loss=loss, live=needs, streams=("ref", "token_reward"), norm=unit_mean
    )


def weighted_pairs(beta: Schedule, *, on: Authors = "policy", most: float = 1.0) -> Term:
    """WPO: DPO times the held weights of both replies, their product at most `most`."""

    def loss(live: Live) -> Tensor:
        w, r, now = *pair_sides(live), at(beta, live.clock)
        note_pairs(live, w, r, now)
        with torch.no_grad():
            collision = torch.softmax(live.logits, -1).square().sum(-1)
            log_weight = row_mean(live, maths.sampled_weight(live.logp, collision))
            weight = log_weight[live.pairs].sum(-1).exp().clamp(max=most)
        live.note("weight", weight)
        return weight * dpo_logistic(w.logratio, r.logratio, now)

    needs = ("logp", "entropy", "logits")
    return Term(name="reply", on=on, unit="pair", loss=loss, live=needs, streams=("ref",), norm=unit_mean)


def pair_sides(live: Live) -> tuple[Replies, Replies]:
    """The preferred and the other replies of the pairs."""
    everyone = replies_of(live)
    return everyone.at(live.pairs[:, 0]), everyone.at(live.pairs[:, 1])


def win_rate_targets(eta: Schedule, *, anchor: str = "past", on: Authors = "policy") -> Term:
    """SPPO: each reply's log-ratio regresses eta (P - 1/2), its win rate in stream "wins"."""
    return pair_term(
        lambda w, r, eta: maths.sppo_squared(w.logratio, r.logratio, w["wins"], r["wins"], eta),
        beta=eta,
        anchor=anchor,
        marks=("wins",),
        on=on,
    )


def soft_preference(eta: Schedule, *, anchor: str = "past", on: Authors = "policy") -> Term:
    """DNO: cross-entropy between s(P_w - P_l), win rates in stream "wins", and s(eta (lr_w - lr_l))."""
    return pair_term(
        lambda w, r, eta: maths.soft_logistic(
            eta * (w.logratio - r.logratio), torch.sigmoid(w["wins"] - r["wins"]).to(w.logratio)
        ),
        beta=eta,
        anchor=anchor,
        marks=("wins",),
        on=on,
    )


def against_population(target: float, weights: dict[str, float], *, on: Authors = "policy") -> Term:
    """INPO and MNPO: (log pi_w/pi_l - sum_j weight_j log pi_j(w)/pi_j(l) - target)^2, pi_j's log-probs in stream j."""
    anchors = tuple(weights)

    def loss(w: Replies, r: Replies, _: float) -> Tensor:
        behind = sum((weight * (w[name] - r[name]) for name, weight in weights.items()), torch.zeros_like(w.logp))
        return maths.population_squared(w.logp - r.logp, behind, target)

    return pair_term(loss, anchor=None, streams=anchors, on=on)


def simpo(beta: Schedule, gamma: float, *, on: Authors = "policy") -> Term:
    """SimPO: mean log-probs, a margin gamma, no reference."""
    return pair_term(
        lambda w, r, beta: logistic(free.simpo_margin(w.logp, r.logp, beta, gamma)),
        beta=beta,
        anchor=None,
        reduce=row_mean,
        on=on,
    )


def alphapo(beta: Schedule, alpha: float, gamma: float, *, on: Authors = "policy") -> Term:
    """AlphaPO: SimPO with the reward (1 - p^-alpha) / alpha."""
    return pair_term(
        lambda w, r, beta: logistic(free.alphapo_margin(w.logp, r.logp, alpha, beta, gamma)),
        beta=beta,
        anchor=None,
        reduce=row_mean,
        on=on,
    )


def odds_ratio(*, coef: Schedule, on: Authors = "policy") -> Term:
    """ORPO's odds-ratio loss."""
    return pair_term(
        lambda w, r, _: free.orpo_odds(w.logp, r.logp), anchor=None, reduce=row_mean, coef=coef, on=on, name="odds"
    )


def slic(delta: float, *, on: Authors = "policy") -> Term:
    """SLiC-HF's rank calibration: max(0, delta - log pi_w + log pi_l)."""
    return pair_term(lambda w, r, _: free.slic_hinge(w.logp, r.logp, delta), anchor=None, on=on)


def uniform_reference(beta: Schedule, *, on: Authors = "policy") -> Term:
    """CPO and TPO: -log s(beta (log pi_w - log pi_l)), DPO with a uniform reference."""
    return pair_term(lambda w, r, beta: logistic(beta * (w.logp - r.logp)), beta=beta, anchor=None, on=on)


def conservative(lam: float, temperature: float, *, on: Authors = "policy") -> Term:
    """DPPO: the contrast of mean log-probs in which the worse reply counts lam."""
    return pair_term(
        lambda w, r, _: free.conservative_contrast(w.logp, r.logp, lam, temperature),
        anchor=None,
        reduce=row_mean,
        on=on,
    )


def soft_ipo(tau: Schedule, *, on: Authors = "policy") -> Term:
    """IPO whose label is the chance that w is preferred, in stream "preference"."""
    return pair_term(
        lambda w, r, tau: maths.ipo_soft(w.logratio, r.logratio, w["preference"].to(w.logratio), tau),
        beta=tau,
        marks=("preference",),
        on=on,
    )


def levelled(beta: Schedule, *, on: Authors = "policy") -> Term:
    """TRPA: -log s(c beta (m_w - m_l)), m the mean log-ratio of a token, c the factor in stream "factor" of w."""
    return pair_term(
        lambda w, r, beta: logistic(beta * w["factor"].to(w.logratio) * (w.logratio - r.logratio)),
        beta=beta,
        marks=("factor",),
        reduce=row_mean,
        on=on,
    )


def step_apo(beta: Schedule, value: str, *, on: Authors = "policy") -> Term:
    """Step-APO on pairs of next steps; the stream `value` has the value after a step on each of its tokens."""
    return pair_term(
        lambda w, r, beta: maths.step_apo(w.logratio, r.logratio, w[value], r[value], beta),
        beta=beta,
        marks=(value,),
        on=on,
    )
