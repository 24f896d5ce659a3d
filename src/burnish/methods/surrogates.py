"""Other ratios and other clips, on group advantages: what stands between a sample's advantage and its gradient."""

from __future__ import annotations

import math

from burnish.cast.roles import stage
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.credit.streams import behaviour, old
from burnish.credit.verdicts import make_up_for_flat_groups
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import constant, group_mean, seq_mean, token_mean
from burnish.learn.terms import pg_clip, pg_reinforce
from burnish.learn.terms.surrogates import (
    drift,
    pg_geometric,
    pg_held_ratio,
    pg_log_ratio,
    pg_sequence,
    pg_sequence_by_token,
    pg_soft,
)
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.sample import sample
from burnish.score.length import punish_overlong
from burnish.score.verify import verify
from burnish.select.filters import mixed
from burnish.select.refill import refilled
from burnish.tasks.source import Source

_GSPO = "Group Sequence Policy Optimization"


@register(
    family="policy",
    catalogue=("dapo",),
    title="DAPO: An Open-Source LLM Reinforcement Learning System at Scale",
    arxiv="2503.14476",
    summary="GRPO with a higher upper clip, a token mean, mixed groups alone and a soft length limit.",
    when="Long reasoning with verifiable rewards: groups that tie are dropped, rare good tokens are not clipped early.",
    trial={"n": 4},
)
def dapo(
    task: Source, *, n: int = 8, eps_low: float = 0.2, eps_high: float = 0.28, overlong: float = 0.2, refills: int = 3, minibatches: int = 4,
    temperature: float = 1.0,
) -> Method:  # fmt: skip
    """DAPO: decoupled clip and dynamic sampling policy optimisation.

    R = 2 score - 1 + punishment;  punishment = 0 up to L_max - L_buffer tokens, then a line down to -1 at L_max
    A_i = (R_i - mean R) / std R over the n replies to one prompt, in groups with 0 < right < n alone
    L = mean over all tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A);  no KL

    Whether a group is mixed is asked of the verifier's score, before the punishment. L_max is the run's longest reply.
    Groups that are all right or all wrong are dropped and others drawn in their place, as often as `refills` says; the paper
    goes on until the batch is full (its script: 10 times at most). Departure: the mean is over the tokens of an update, as in
    the released code, where the equation takes it within each group. The paper samples 16 replies to 512 prompts and makes 16
    updates of them.
    n: replies sampled for each prompt. eps_low: how far the ratio may fall before it is clipped.
    eps_high: how far it may rise. overlong: the buffer of the length punishment, as a share of the longest reply.
    refills: how often a step fills up its batch after the filter. minibatches: updates made of each batch.
    """
    draw, rollout = prompts(task), sample(n, temperature=temperature)
    score = chain(verify(task), punish_overlong(overlong))
    return method(
        draw=draw,
        rollout=rollout,
        score=score,
        select=refilled(mixed(), draw, rollout, score, refills),
        credit=chain(group_relative(score="shaped"), behaviour(), member("pg", "policy", tag="mixed")),
        learn=Learn(pg_clip(eps_low, eps_high, norm=token_mean), minibatches=minibatches, temperature=temperature),
        cast=stage(),
    )


@register(
    family="policy",
    catalogue=("dr-grpo",),
    title="Understanding R1-Zero-Like Training: A Critical Perspective",
    arxiv="2503.20783",
    summary="GRPO without the division by the spread and by the length.",
    when="GRPO's replies grow longer when they are wrong, or easy and hard prompts are weighed too much.",
    trial={"n": 4},
)
def dr_grpo(task: Source, *, n: int = 8, eps: float = 0.2, minibatches: int = 1, temperature: float = 1.0) -> Method:
    """GRPO done right: neither the spread of a group nor the length of a reply changes a token's weight.

    A_i = r_i - mean r over the n replies to one prompt
    L = sum over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A) / (replies x longest reply);  no KL

    The longest reply stands for the paper's generation budget (3000 tokens in its code).
    n: replies sampled for each prompt. eps: how far the ratio may move before it is clipped.
    minibatches: updates made of each batch.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(group_relative(std=False), behaviour(), member("pg", "policy")),
        learn=Learn(pg_clip(eps, norm=constant()), minibatches=minibatches, temperature=temperature),
        cast=stage(),
    )


@register(
    family="policy",
    catalogue=("gspo",),
    title=_GSPO,
    arxiv="2507.18071",
    summary="One ratio for a whole reply, clipped as a whole.",
    when="Mixture-of-experts models or long replies, whose single-token ratios are too noisy to clip.",
    trial={"n": 4},
)
def gspo(
    task: Source, *, n: int = 8, eps_low: float = 3e-4, eps_high: float = 4e-4, minibatches: int = 4, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Group sequence policy optimisation.

    s_i = (pi(y_i) / pi_old(y_i))^(1/|y_i|);  A_i = (r_i - mean r) / std r
    L = mean over replies of -min(s A, clip(s, 1-eps_low, 1+eps_high) A);  no KL

    The clip range is far below PPO's, since s is a geometric mean over a reply's tokens; so pi_old is computed again by the
    trainer before the updates, lest the sampler's rounding fill it. The paper does not print n.
    n: replies sampled for each prompt. eps_low: how far s may fall before it is clipped. eps_high: how far it may rise.
    minibatches: updates made of each batch; 4 is the paper's.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(group_relative(), old(temperature=temperature), member("pg", "policy")),
        learn=Learn(pg_sequence(eps_low, eps_high), minibatches=minibatches, temperature=temperature),
        cast=stage(),
    )


@register(
    family="policy",
    catalogue=("gspo",),
    title=_GSPO,
    arxiv="2507.18071",
    summary="GSPO in a form whose advantage may differ from token to token.",
    when="As `gspo`, when advantages differ within a reply.",
    trial={"n": 4},
)
def gspo_token(
    task: Source, *, n: int = 8, eps_low: float = 3e-4, eps_high: float = 4e-4, minibatches: int = 4, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """GSPO-token: the value of the reply's ratio, the gradient of the token's.

    s_it = sg[s_i] pi_t / sg[pi_t];  L = mean over replies of mean over tokens of -min(s_it A, clip(s_it, 1-eps_low, 1+eps_high) A)

    With one advantage for a whole reply, as here, its value and its gradient are those of `gspo`; it is the form to build on
    where advantages differ within a reply.
    n: replies sampled for each prompt. eps_low: how far s may fall before it is clipped. eps_high: how far it may rise.
    minibatches: updates made of each batch; 4 is the paper's.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(group_relative(), old(temperature=temperature), member("pg", "policy")),
        learn=Learn(
            pg_sequence_by_token(eps_low, eps_high, norm=seq_mean), minibatches=minibatches, temperature=temperature
        ),
        cast=stage(),
    )


@register(
    family="policy",
    catalogue=("gmpo",),
    title="Geometric-Mean Policy Optimization",
    arxiv="2507.20673",
    summary="The geometric mean of token ratios, each clipped before the mean.",
    when="GRPO is unstable through a few extreme token ratios.",
    trial={"n": 4},
)
def gmpo(task: Source, *, n: int = 8, eps: float = 0.4, minibatches: int = 4, temperature: float = 1.0) -> Method:
    """Geometric-mean policy optimisation.

    l_t = log(pi/pi_old) at token t, kept below eps where A > 0 and above -eps where A < 0
    L = mean over replies of -exp(mean over tokens of l_t) A;  A_i = (r_i - mean r) / std r;  no KL

    GSPO clips after the mean, GMPO before it. The sources do not say how many updates a batch makes.
    n: replies sampled for each prompt. eps: the bound on a token's log ratio; 0.4 is the paper's.
    minibatches: updates made of each batch.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(group_relative(), behaviour(), member("pg", "policy")),
        learn=Learn(pg_geometric(eps), minibatches=minibatches, temperature=temperature),
        cast=stage(),
    )


@register(
    family="policy",
    catalogue=("cispo",),
    title="MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention",
    arxiv="2506.13585",
    summary="The importance weight is clipped, not the update: every token keeps a gradient.",
    when="Rare, decisive tokens are clipped away by PPO, as in long reasoning over several updates a batch.",
    trial={"n": 4},
)
def cispo(
    task: Source, *, n: int = 8, eps_low: float = math.inf, eps_high: float = 4.0, minibatches: int = 4, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Clipped importance-sampling-weight policy optimisation.

    w = sg[clip(rho, 1-eps_low, 1+eps_high)];  A_i = (r_i - mean r) / std r
    L = mean over groups of mean over the group's tokens of -w A log pi;  no KL

    The paper sets no lower bound and does not print eps_high: 4 (a weight of at most 5) is our choice. It makes 16 updates of
    a batch, and adds DAPO's dynamic sampling and length penalty, which are left out here: they are not part of the loss.
    n: replies sampled for each prompt. eps_low: how far the weight may fall below 1; infinite is no bound.
    eps_high: how far the weight may rise above 1. minibatches: updates made of each batch.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(group_relative(), behaviour(), member("pg", "policy")),
        learn=Learn(
            pg_held_ratio(1 - eps_low, 1 + eps_high, norm=group_mean), minibatches=minibatches, temperature=temperature
        ),
        cast=stage(),
    )


@register(
    family="policy",
    catalogue=("sapo",),
    title="Soft Adaptive Policy Optimization",
    arxiv="2511.20347",
    summary="A soft gate on the ratio in place of a clip, steeper for bad replies.",
    when="A hard clip wastes or kills gradients, and bad replies destabilise the run.",
    trial={"n": 4},
)
def sapo(
    task: Source, *, n: int = 8, tau_pos: float = 1.0, tau_neg: float = 1.05, minibatches: int = 4, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Soft adaptive policy optimisation.

    L = mean over replies of mean over tokens of -f(rho) A,   f(x) = (4/tau) sigmoid(tau (x - 1)),   A_i = (r_i - mean r) / std r
    tau = tau_pos where A > 0, else tau_neg;  no clip, no KL

    The gradient's weight is sech^2(tau (rho - 1) / 2) rho: it fades smoothly as the ratio leaves 1. The logged loss is not
    comparable with PPO's: f(1) = 2 / tau. n and the number of updates are not in the sources that were read.
    n: replies sampled for each prompt. tau_pos: steepness of the gate for good replies. tau_neg: the same for bad ones.
    minibatches: updates made of each batch.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(group_relative(), behaviour(), member("pg", "policy")),
        learn=Learn(pg_soft(tau_pos, tau_neg, norm=seq_mean), minibatches=minibatches, temperature=temperature),
        cast=stage(),
    )


@register(
    family="policy",
    catalogue=("cpgd",),
    title="CPGD: Toward Stable Rule-based Reinforcement Learning for Language Models",
    arxiv="2505.12504",
    summary="A clipped log ratio, so no ratio in the gradient, and a bounded pull to the old policy.",
    when="Runs collapse through large ratios, and you want the old policy as the anchor.",
    trial={"n": 4},
)
def cpgd(
    task: Source, *, n: int = 8, eps: float = 0.2, alpha: float = 0.001, cut: float = 2.0, minibatches: int = 4, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Clipped policy gradient optimisation with policy drift.

    l = log(pi/pi_old);  A_i = (r_i - mean r) / std r
    L = mean over groups of mean over the group's tokens of -min(l A, clip(l, ln(1-eps), ln(1+eps)) A) + alpha min(sg[rho] - 1, cut) log pi

    The second part has the gradient of KL(pi_old || pi), with its factor bounded above. The paper prints none of eps, alpha,
    cut: these are the values of its institute's code. Of its three prompt weights this is the one that scored best, 1/std;
    the others, and the clip that loosens along a reply, are left out. The number of updates is our choice.
    n: replies sampled for each prompt. eps: the clip range, of the ratio. alpha: weight of the policy drift.
    cut: the bound on the drift's factor. minibatches: updates made of each batch.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(group_relative(), behaviour(), member("pg", "policy"), member("drift", "policy")),
        learn=Learn(pg_log_ratio(eps), drift(cut, coef=alpha), minibatches=minibatches, temperature=temperature),
        cast=stage(),
    )


@register(
    family="policy",
    catalogue=("gpg",),
    title="GPG: A Simple and Strong Reinforcement Learning Baseline for Model Reasoning",
    arxiv="2504.02546",
    summary="The plain policy gradient with a group baseline, scaled up for groups that say nothing.",
    when="You want the plain policy gradient: no reference, no clip, no critic.",
    trial={"n": 4},
)
def gpg(task: Source, *, n: int = 8, temperature: float = 1.0) -> Method:
    """Group policy gradient.

    A_i = alpha (r_i - mean r),   alpha = B / (B - M):  B groups in the batch, M of them all right or all wrong
    L = mean over all tokens of -A log pi;  no ratio, no clip, no KL, no reference

    One update a batch. The released code also samples again until enough groups are mixed (a share of 0.6 in its best row);
    here the batch is used as it falls.
    n: replies sampled for each prompt.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(group_relative(std=False), make_up_for_flat_groups(), member("pg", "policy")),
        learn=Learn(pg_reinforce(norm=token_mean), temperature=temperature),
        cast=stage(),
    )
