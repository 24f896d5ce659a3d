"""Pairs that are sampled and scored as the run goes: mixtures, bonuses, rejection sampling, diversity, levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.roles import snapshot
from burnish.credit import by_bradley_terry, by_comparison
from burnish.learn.terms import preference_pairs as pairs
from burnish.learn.terms.policy import kl_to
from burnish.learn.terms.preference_unpaired import likelihood, log_ratio
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, papers, register
from burnish.select.lists import DIVERSITY

LOSSES: dict[str, Callable[..., learn.Term]] = {"logistic": learn.dpo, "hinge": pairs.hinge}
Tau = Annotated[float, Option("Strength of the regulariser; the margin's target is 1 / (2 tau).", above=0)]
Optimism = Annotated[float, Option("Weight of the bonus; 0 leaves it out.", at_least=0)]


@register(
    papers.IPO_MD,
    family="preference",
    summary="IPO on pairs of the policy's own samples: its fixed point is a Nash equilibrium.",
    when="As `online_dpo`, when preferences are not transitive or nearly certain.",
)
def online_ipo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    tau: Tau = 0.1,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Online IPO: `ipo_md` whose samples are the policy's alone.

    d = lr(y) - lr(y'),  lr = log pi(y|x) - log ref(y|x);  p = P(y > y')
    L = p (d - 1/(2 tau))^2 + (1 - p) (-d - 1/(2 tau))^2,  mean over pairs

    The pair is the best and the worst of n replies. p is a reward model's sigmoid(r - r'), or 1 by the verifier.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, reward_model),
        select=select.best_vs_worst(),
        credit=chain(credit.ref(), credit.pair_preference(by_bradley_terry if reward_model else by_comparison)),
        learn=learn.Learn(pairs.soft_ipo(tau)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.IPO_MD,
    family="preference",
    summary="IPO on samples of a geometric mixture of the policy and the reference.",
    when="As `online_ipo`, when self-play is unstable.",
)
def ipo_md(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    tau: Tau = 0.1,
    alpha: Annotated[float, Option("Share of the reference in the mixture.", at_least=0, at_most=1)] = 0.25,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """IPO-MD.

    y, y' ~ softmax((1 - alpha) log pi + alpha log ref) token by token, without gradient
    d = lr(y) - lr(y'),  lr = log pi(y|x) - log ref(y|x);  p = P(y > y')
    L = p (d - 1/(2 tau))^2 + (1 - p) (-d - 1/(2 tau))^2,  mean over pairs

    alpha = 0 is `online_ipo`. Both replies come from the mixture, unlike Nash-MD, where only the opponent's do. The
    paper's alpha and tau were not available: alpha is in the range that Nash-MD found best.
    """
    mixture = rollout.geometric("ref", alpha)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature, blend=mixture, author="mixture"),
        score=score.scoring(task, reward_model, author="mixture"),
        select=select.best_vs_worst(),
        credit=chain(credit.ref(), credit.pair_preference(by_bradley_terry if reward_model else by_comparison)),
        learn=learn.Learn(pairs.soft_ipo(tau, on="mixture")),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.XPO,
    family="preference",
    summary="Online DPO against the reference's replies, whose likelihood is lowered: deliberate exploration.",
    when="Online DPO keeps to replies that the starting policy likes already.",
)
def xpo(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    beta: opt.Beta = 0.1,
    alpha: Optimism = 1e-5,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """XPO.

    y ~ pi,  y~ ~ ref, the better-scored of the two preferred;  lr = log pi(y|x) - log ref(y|x)
    L = mean over pairs of -log s( beta [lr_w - lr_l] ) + alpha mean over the reference's replies of log pi(y~|x)

    The paper sums over all rounds so far; here, as in the usual implementation, over the batch. alpha = 0 is online DPO
    against the reference. The paper prints no numbers for language models: alpha and beta are those in use.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.join(
            rollout.sample(n, temperature=temperature), rollout.sample(n, who="ref", temperature=temperature, tag="ref")
        ),
        score=score.scoring(task, reward_model),
        select=select.rival_pairs("policy", "ref"),
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(beta, on=("policy", "ref")), likelihood(coef=alpha, on="ref")),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.SELM,
    family="preference",
    summary="Rounds of DPO on given pairs and greedy replies, whose likelihood is lowered: optimism.",
    when="You have pairs, and want the policy to explore beyond them.",
    trial={"sync": 1},
)
def selm(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.01,
    alpha: Optimism = 0.001,
    sync: opt.Sync = 100,
    reward_model: opt.RewardModel = None,
) -> Method:
    """SELM.

    y = the greedy reply of pi_t;  (w, l) = the best and the worst of y and the given chosen and rejected replies
    L = -log s( beta [lr_w - lr_l] ) + alpha beta [log pi(y|x) - log pi_t(y|x)],  lr relative to pi_t,  mean

    pi_t is the policy at the start of the round: reference and sampler. The paper ranks by PairRM; here the verifier
    or a reward model does. beta and alpha are those of its Zephyr runs. Three rounds are the paper's.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.join(
            rollout.given("chosen", "rejected"), rollout.sample(1, who="past", temperature=0.0, tag="greedy")
        ),
        score=score.scoring(task, reward_model, author="past"),
        select=select.best_vs_worst_beside("past"),
        credit=credit.ref("past"),
        learn=learn.Learn(learn.dpo(beta, on=("demo", "past")), log_ratio(coef=alpha * beta, on="past")),
        models=roles(past=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.VPO,
    family="preference",
    summary="Online DPO with a bonus that makes the implicit reward optimistic.",
    when="Online DPO explores too little.",
)
def vpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    beta: opt.Beta = 0.1,
    alpha: Optimism = 0.01,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """VPO, online.

    (w, l) = the best and the worst of n samples of pi;  y ~ ref, the calibration distribution
    L = mean over pairs of -log s( beta [lr_w - lr_l] ) + alpha beta mean of [log pi(y|x) - log ref(y|x)]

    Optimism lowers the calibration replies. alpha = 0 is `online_dpo`. The formula is reconstructed from the theory
    (its sign and factor were checked numerically); alpha is a choice of ours. `vpo_offline` is the pessimistic side.
    """
    calibration = rollout.sample(1, who="ref", temperature=temperature, tag="calibration")
    return method(
        draw=draw.prompts(task),
        rollout=rollout.join(rollout.sample(n, temperature=temperature), calibration),
        score=score.scoring(task, reward_model),
        select=select.best_vs_worst_beside("ref", "policy"),
        credit=chain(credit.ref(), credit.copies(ref="calibrated")),
        learn=learn.Learn(learn.dpo(beta), log_ratio(coef=alpha * beta, on="ref", anchor="calibrated")),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.VPO,
    family="preference",
    summary="DPO with a penalty that makes the implicit reward pessimistic.",
    when="Given pairs cover little, and DPO over-optimises.",
)
def vpo_offline(task: draw.Source, *, beta: opt.Beta = 0.1, alpha: Optimism = 0.01) -> Method:
    """VPO, offline.

    L = mean over pairs of -log s( beta [lr_w - lr_l] ) - alpha beta mean of [log pi(y|x) - log ref(y|x)],  y the chosen

    Pessimism raises the calibration replies, which are the chosen ones. alpha = 0 is DPO. As in `vpo`, alpha is ours.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=chain(credit.cached_ref(task), credit.claim("bonus", "demo", tag="chosen")),
        learn=learn.Learn(learn.dpo(beta, on="demo"), log_ratio(coef=-alpha * beta, on=learn.CLAIMED)),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.RSO,
    family="preference",
    summary="Pairs from statistical rejection sampling: about what the optimal policy would write.",
    when="A reward model, and pairs that should come from the optimal policy rather than from the start.",
    trial={"n": 6, "accept": 4},
)
def rso(
    task: draw.Source,
    *,
    n: opt.GroupSize = 64,
    accept: Annotated[int, Option("Replies that rejection sampling accepts.", at_least=2)] = 8,
    beta: Annotated[float, Option("Temperature of rejection sampling; small values take the best.", above=0)] = 0.5,
    gamma: Annotated[float, Option("Scale of the margin in the loss.", above=0)] = 0.05,
    loss: Annotated[str, Option("The loss on a pair.", choices=tuple(LOSSES))] = "logistic",
    temperature: opt.Temperature = 0.7,
    top_k: Annotated[int, Option("Samples come from this many likeliest tokens; 0 is all.", at_least=0)] = 40,
    reward_model: opt.RewardModel = None,
) -> Method:
    """RSO.

    y_1..y_n ~ ref;  pass after pass, y is accepted with chance e^((r - r_max)/beta), r_max the largest reward left
    neighbours among the accepted are paired;  d = lr_w - lr_l,  lr = log pi(y|x) - log ref(y|x)
    L = -log s(gamma d) (logistic) or max(0, 1 - gamma d) (hinge),  mean over pairs

    The constants are the paper's, whose rewards come from a pairwise model. Pairs are a tournament's first round.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="ref", temperature=temperature, top_k=top_k),
        score=score.scoring(task, reward_model, author="ref"),
        select=chain(select.keep_accepted(beta, accept), select.first_round("accepted")),
        credit=credit.ref(logp_temperature=1.0),
        learn=learn.Learn(LOSSES[loss](gamma, on="ref"), logp_temperature=1.0),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.DIVPO,
    family="preference",
    summary="Online DPO that prefers a rare good reply to a common bad one.",
    when="Online DPO makes replies all alike.",
)
def divpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 16,
    rho: Annotated[float, Option("Width of both bands, as a share of the reward range.", at_least=0, at_most=1)] = 0.3,
    diversity: Annotated[str, Option("What makes a reply unusual.", choices=tuple(DIVERSITY))] = "probability",
    beta: opt.Beta = 0.1,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """DivPO: another choice of pairs for online DPO.

    w = the most diverse reply within rho (r_max - r_min) of the best;  l = the least diverse so near to the worst
    L = -log s( beta [lr_w - lr_l] ),  mean over pairs;  lr = log pi(y|x) - log ref(y|x)

    diversity: probability takes -log pi(y|x), words the rarity of a reply's tokens in its group. rho = 0 compares the
    best with the worst. rho = 0.3 is that of one of the paper's runs; the bands are of values, one of its two
    readings.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, reward_model),
        select=select.diverse_vs_usual(rho, DIVERSITY[diversity]),
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(beta)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.TRPA,
    family="preference",
    summary="Online DPO on every pair of different levels (right, answered, neither), in a trust region.",
    when="Verifiable tasks, where rules rank replies and the size of a reward should not matter.",
)
def trpa(
    task: draw.Source,
    *,
    n: opt.GroupSize = 16,
    beta: opt.Beta = 0.1,
    anisotropy: Annotated[float, Option("Factor of beta where the better reply is right.", above=0)] = 2.5,
    kl: opt.KLCoef = 0.001,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """TRPA.

    levels: right, a wrong answer, no answer;  m(y) = mean over tokens of log pi - log ref
    L = mean over pairs of different levels of -log s( c beta [m(y_w) - m(y_l)] ) + kl x token mean of k3(pi, pi_old)

    c = anisotropy where y_w is right, else 1. The constants are the authors'. Their code has a fourth level (cut
    off), and a loss on single replies for micro-batches without a pair; here such prompts are dropped.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=chain(score.verify(task), score.partial_for_answering(0.1)),
        select=select.every_pair("shaped"),
        credit=chain(credit.behaviour(), credit.ref(), credit.factor_of_right(anisotropy, score="shaped")),
        learn=learn.Learn(pairs.levelled(beta), kl_to("old", coef=kl)),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
