"""Pairs without a reference model."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option
from burnish.methods import papers, register
from burnish.methods.given_pairs import from_pairs

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
    return from_pairs(
        task,
        pairs.uniform_reference(beta, on="demo"),
        learn.imitate(coef=alpha, on=learn.CLAIMED),
        credit=credit.claim("sft", "demo", tag="chosen"),
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
    return from_pairs(task, pairs.simpo(beta, gamma, on="demo"))


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

    lam = 0.1 is the usual choice. The SFT loss is a mean over the tokens of the replies. Departure: the released code's
    is over the prompt's tokens too, by default.
    """
    return from_pairs(
        task,
        learn.imitate(on=learn.CLAIMED),
        pairs.odds_ratio(coef=lam, on="demo"),
        credit=credit.claim("sft", "demo", tag="chosen"),
        lr_share=1.0,
    )
