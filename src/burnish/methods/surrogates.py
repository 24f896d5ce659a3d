"""Other ratios and other clips, on group advantages: what stands between a sample's advantage and its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.learn.term import Term
from burnish.learn.terms.surrogates import pg_sequence, pg_sequence_by_token, pg_soft
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import Arguments, opt, papers, register, variant


@register(
    papers.DAPO,
    family="policy",
    summary="GRPO with a higher upper clip, a token mean, mixed groups alone and a soft length limit.",
    when="Long reasoning with verifiable rewards: groups that tie are dropped, rare good tokens are not clipped early.",
)
def dapo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    overlong: opt.Overlong = 0.2,
    refills: Annotated[int, Option("How often a step fills up its batch after the filter.", at_least=0)] = 3,
    minibatches: opt.Minibatches = 4,
) -> Method:
    """DAPO: decoupled clip and dynamic sampling policy optimisation.

    R = 2 score - 1 + punishment;  punishment = 0 up to L_max - L_buffer tokens, then a line down to -1 at L_max
    A_i = (R_i - mean R) / std R over the n replies to one prompt, in groups with 0 < right < n alone
    L = mean over all tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A);  no KL

    Whether a group is mixed is asked of the verifier's score, before the punishment. L_max is the run's longest
    reply. Groups that are all right or all wrong are dropped and others drawn in their place, as often as `refills`
    says; the paper goes on until the batch is full (its script: 10 times at most). Departure: the mean is over the
    tokens of an update, as in the released code, where the equation takes it within each group. The paper samples
    16 replies to 512 prompts and makes 16 updates of them.
    """
    drawn, sampled = draw.prompts(task), rollout.sample(n)
    scored = chain(score.verify(task), score.punish_overlong(overlong))
    return method(
        draw=drawn,
        rollout=sampled,
        score=scored,
        select=select.refilled(select.mixed(), drawn, sampled, scored, refills),
        credit=chain(
            credit.group_relative(score="shaped"), credit.behaviour(), credit.claim("pg", "policy", tag="mixed")
        ),
        learn=learn.Learn(
            learn.pg_clip(eps_low, eps_high, norm=learn.token_mean, on=learn.CLAIMED), minibatches=minibatches
        ),
        models=roles(),
    )


@register(
    papers.DR_GRPO,
    family="policy",
    summary="GRPO without the division by the spread and by the length.",
    when="GRPO's replies grow longer when they are wrong, or easy and hard prompts are weighed too much.",
)
def dr_grpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    minibatches: opt.Minibatches = 1,
) -> Method:
    """GRPO done right: neither the spread of a group nor the length of a reply changes a token's weight.

    A_i = r_i - mean r over the n replies to one prompt
    L = sum over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A) / (replies x longest reply);  no KL

    The longest reply stands for the paper's generation budget (3000 tokens in its code).
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(std=False), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.constant()), minibatches=minibatches),
        models=roles(),
    )


def _by_reply(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps_low: opt.ClipLow = 3e-4,
    eps_high: opt.ClipHigh = 4e-4,
    surrogate: Callable[[float, float], Term] = pg_sequence,
    minibatches: opt.Minibatches = 4,
) -> Method:
    """Group advantages on the ratio of a whole reply, whose old log-probs the trainer computes."""
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.old()),
        learn=learn.Learn(surrogate(eps_low, eps_high), minibatches=minibatches),
        models=roles(),
    )


@register(
    papers.GSPO,
    family="policy",
    summary="One ratio for a whole reply, clipped as a whole.",
    when="Mixture-of-experts models or long replies, whose single-token ratios are too noisy to clip.",
)
@variant(_by_reply)
def gspo() -> Arguments:
    """Group sequence policy optimisation.

    s_i = (pi(y_i) / pi_old(y_i))^(1/|y_i|);  A_i = (r_i - mean r) / std r
    L = mean over replies of -min(s A, clip(s, 1-eps_low, 1+eps_high) A);  no KL

    The clip range is far below PPO's, since s is a geometric mean over a reply's tokens; so pi_old is computed
    again by the trainer before the updates, lest the sampler's rounding fill it. The paper does not print n. 4
    updates of a batch are the paper's.
    """
    return {"surrogate": pg_sequence}


@register(
    papers.GSPO,
    family="policy",
    summary="GSPO in a form whose advantage may differ from token to token.",
    when="As `gspo`, when advantages differ within a reply.",
)
@variant(_by_reply)
def gspo_token() -> Arguments:
    """GSPO-token: the value of the reply's ratio, the gradient of the token's.

    s_it = sg[s_i] pi_t / sg[pi_t]
    L = mean over replies of mean over tokens of -min(s_it A, clip(s_it, 1-eps_low, 1+eps_high) A)

    With one advantage for a whole reply, as here, its value and its gradient are those of `gspo`; it is the form to
    build on where advantages differ within a reply. 4 updates of a batch are the paper's.
    """
    return {"surrogate": partial(pg_sequence_by_token, norm=learn.seq_mean)}


@register(
    papers.CISPO,
    family="policy",
    summary="The importance weight is clipped, not the update: every token keeps a gradient.",
    when="Rare, decisive tokens are clipped away by PPO, as in long reasoning over several updates a batch.",
)
def cispo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps_low: Annotated[
        float, Option("How far the weight may fall below 1; inf is no bound.", at_least=0, unlimited=True)
    ] = math.inf,
    eps_high: Annotated[float, Option("How far the weight may rise above 1.", at_least=0, unlimited=True)] = 4.0,
    minibatches: opt.Minibatches = 4,
) -> Method:
    """Clipped importance-sampling-weight policy optimisation.

    w = sg[clip(rho, 1-eps_low, 1+eps_high)];  A_i = (r_i - mean r) / std r
    L = mean over groups of mean over the group's tokens of -w A log pi;  no KL

    The paper sets no lower bound and does not print eps_high: 4 (a weight of at most 5) is our choice. It makes 16
    updates of a batch, and adds DAPO's dynamic sampling and length penalty, which are left out here: they are not
    part of the loss.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.behaviour()),
        learn=learn.Learn(
            learn.pg_held_ratio(1 - eps_low, 1 + eps_high, norm=learn.group_mean), minibatches=minibatches
        ),
        models=roles(),
    )


@register(
    papers.SAPO,
    family="policy",
    summary="A soft gate on the ratio in place of a clip, steeper for bad replies.",
    when="A hard clip wastes or kills gradients, and bad replies destabilise the run.",
)
def sapo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    tau_pos: Annotated[float, Option("Steepness of the gate for good replies.", above=0)] = 1.0,
    tau_neg: Annotated[float, Option("Steepness of the gate for bad replies.", above=0)] = 1.05,
    minibatches: opt.Minibatches = 4,
) -> Method:
    """Soft adaptive policy optimisation.

    L = mean over replies of mean over tokens of -f(rho) A,   f(x) = (4/tau) sigmoid(tau (x - 1))
    A_i = (r_i - mean r) / std r;   tau = tau_pos where A > 0, else tau_neg;  no clip, no KL

    The gradient's weight is sech^2(tau (rho - 1) / 2) rho: it fades smoothly as the ratio leaves 1. The logged loss
    is not comparable with PPO's: f(1) = 2 / tau. n and the number of updates are not in the sources that were read.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.behaviour()),
        learn=learn.Learn(pg_soft(tau_pos, tau_neg, norm=learn.seq_mean), minibatches=minibatches),
        models=roles(),
    )
