"""Pairs without a reference model."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, papers, register

Scale = Annotated[float, Option("Scale of the margin.", above=0)]
Margin = Annotated[float, Option("The margin that a pair must reach.", at_least=0)]


@register(
    papers.CPO,
    family="preference",
    summary="DPO with a uniform reference, plus an SFT loss on the chosen replies.",
    when="There is no memory for a reference model.",
)
def cpo(
    task: draw.Source,
    *,
    beta: Scale = 0.1,
    alpha: Annotated[float, Option("Weight of the SFT loss.", at_least=0)] = 1.0,
) -> Method:
    """CPO.

    L = mean over pairs of -log s( beta [log pi(y_w|x) - log pi(y_l|x)] ) + alpha mean over chosen tokens of -log pi

    The paper writes the SFT loss as -log pi(y_w|x); its code, which this follows, takes the mean over tokens.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.claim("sft", "demo", tag="chosen"),
        learn=learn.Learn(pairs.uniform_reference(beta, on="demo"), learn.imitate(coef=alpha, on=learn.CLAIMED)),
        models=roles(),
        lr_share=0.1,
    )


@register(
    papers.SIMPO,
    family="preference",
    summary="Mean log-probs as the reward, a target margin, no reference.",
    when="You want DPO without a reference model and without its bias to long replies.",
)
def simpo(task: draw.Source, *, beta: Scale = 2.0, gamma: Margin = 1.0) -> Method:
    """SimPO.

    m(y) = log pi(y|x) / |y|;  L = -log s( beta [m(y_w) - m(y_l)] - gamma ),  mean over pairs

    The authors recommend gamma / beta = 0.5 to begin with, and beta from 2 to 10.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        learn=learn.Learn(pairs.simpo(beta, gamma, on="demo")),
        models=roles(),
        lr_share=0.1,
    )


@register(
    papers.ALPHAPO,
    family="preference",
    summary="SimPO with a reward whose shape is a parameter.",
    when="SimPO pushes likelihoods of both replies down too far.",
)
def alphapo(
    task: draw.Source,
    *,
    beta: Scale = 2.5,
    alpha: Annotated[float, Option("Shape of the reward (1 - p^-alpha)/alpha; 0 is SimPO.")] = 0.25,
    gamma: Margin = 0.25,
) -> Method:
    """AlphaPO.

    p = exp( log pi(y|x) / |y| );  L = -log s( beta [p_l^-alpha - p_w^-alpha] / alpha - gamma ),  mean over pairs

    alpha -> 0 is SimPO. The defaults are those of the paper's Mistral runs (gamma / beta = 0.1).
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        learn=learn.Learn(pairs.alphapo(beta, alpha, gamma, on="demo")),
        models=roles(),
        lr_share=0.1,
    )


@register(
    papers.ORPO,
    family="preference",
    summary="SFT on the chosen replies and an odds ratio against the rejected ones, in one stage.",
    when="You have pairs and a model that was not fine-tuned yet.",
)
def orpo(
    task: draw.Source, *, lam: Annotated[float, Option("Weight of the odds-ratio loss.", at_least=0)] = 0.1
) -> Method:
    """ORPO.

    p = exp( log pi(y|x) / |y| ),  odds = p / (1 - p)
    L = mean over chosen tokens of -log pi + lam mean over pairs of -log s( log odds(y_w) - log odds(y_l) )

    lam = 0.1 is the usual choice. The SFT loss is a mean over tokens.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.claim("sft", "demo", tag="chosen"),
        learn=learn.Learn(learn.imitate(on=learn.CLAIMED), pairs.odds_ratio(coef=lam, on="demo")),
        models=roles(),
    )


@register(
    papers.SLIC,
    family="preference",
    summary="A hinge on the difference of log-probs, and an SFT loss.",
    when="As `cpo`, when a pair that is far enough apart should teach nothing more.",
)
def slic(
    task: draw.Source,
    *,
    delta: Annotated[float, Option("The difference of log-probs that a pair must reach.", at_least=0)] = 1.0,
    lam: Annotated[float, Option("Weight of the SFT loss.", at_least=0)] = 0.5,
) -> Method:
    """SLiC-HF, directly on preference pairs.

    L = max(0, delta - log pi(y_w|x) + log pi(y_l|x)) + lam (-log pi(y_ref|x)),  mean over pairs

    y_ref is the chosen reply; the paper regularises to its SFT data. Log-probs are summed over the reply. The paper's
    numbers were not available: delta = 1 is the usual one, lam a choice of ours.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.claim("sft", "demo", tag="chosen"),
        learn=learn.Learn(
            pairs.slic(delta, on="demo"), learn.imitate(coef=lam, norm=learn.seq_sum_mean, on=learn.CLAIMED)
        ),
        models=roles(),
        lr_share=0.1,
    )


@register(
    papers.DIRECT_PREFERENCE_PPO,
    family="preference",
    summary="Contrast the likelihoods of a pair, the worse one with less weight.",
    when="Reference-free pairs, where rejected replies should not be pushed down as hard.",
)
def direct_preference_ppo(
    task: draw.Source,
    *,
    lam: Annotated[float, Option("Weight of the rejected reply's score.", at_least=0, at_most=1)] = 1.0,
    scale: Annotated[float, Option("Temperature of the contrast.", above=0)] = 0.1,
) -> Method:
    """DPPO: direct preference-based policy optimisation, adapted to language models.

    S(y) = log pi(y|x) / |y|;  L = -log[ e^(S(y_w)/scale) / (e^(S(y_w)/scale) + e^(lam S(y_l)/scale)) ],  mean

    The paper controls robots: its score is minus the mean distance between the policy's actions and a segment's, and a
    preference predictor labels more segments. Here the score is the mean log-prob of the reply, and labels are given.
    lam and scale are the defaults of the authors' code. lam = 1 is SimPO with beta = 1/scale and no margin.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        learn=learn.Learn(pairs.conservative(lam, scale, on="demo")),
        models=roles(),
        lr_share=0.1,
    )


@register(
    papers.TPO,
    family="preference",
    summary="Imitate the best of several replies and contrast two others, in one stage and without a reference.",
    when="Several scored replies a prompt, and no SFT stage before.",
    trial={"n": 6},
)
def tpo(
    task: draw.Source,
    *,
    n: Annotated[int, Option("Replies sampled for each prompt.", at_least=3)] = 5,
    beta: Scale = 0.01,
    alpha: Annotated[float, Option("Weight of imitating the gold reply.", at_least=0)] = 1.0,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """TPO (triple preference optimisation).

    gold, w, l = the best, the second best and the worst of n replies of the starting policy
    L = mean over pairs of -log s( beta [log pi(y_w|x) - log pi(y_l|x)] ) + alpha mean over gold tokens of -log pi

    The paper takes the replies from a data set of rated replies. beta and alpha are those of its base models (0.05 for
    instruction-tuned ones). Prompts whose second best scores like the worst are dropped. alpha = 0 is CPO without SFT.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="start", temperature=temperature),
        score=score.scoring(task, reward_model, author="start"),
        select=select.gold_and_pair(),
        credit=credit.claim("gold", "start", tag="gold"),
        learn=learn.Learn(
            pairs.uniform_reference(beta, on="start"), learn.imitate(coef=alpha, on=learn.CLAIMED, name="gold")
        ),
        models=roles(start=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
