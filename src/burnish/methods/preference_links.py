"""Given pairs and a frozen reference, one link function each: how the margin of a pair becomes a loss."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn
from burnish.learn.terms import preference_pairs as pairs
from burnish.learn.terms.preference_unpaired import likelihood
from burnish.method import Method, Option
from burnish.methods import opt, papers, register
from burnish.methods.given_pairs import from_pairs_and_ref


@register(
    papers.IPO,
    family="preference",
    summary="DPO with a squared loss: the margin has a finite target.",
    when="Preferences are nearly certain, and DPO drives the policy far from its reference.",
)
def ipo(
    task: draw.Source,
    *,
    tau: Annotated[float, Option("Strength of the regulariser; the margin's target is 1 / (2 tau).", above=0)] = 0.1,
) -> Method:
    """IPO.

    d = [log pi(y_w|x) - log ref(y_w|x)] - [log pi(y_l|x) - log ref(y_l|x)]
    L = (d - 1/(2 tau))^2,  mean over pairs

    Log-probs are summed over the reply, as in the paper; some implementations take means, for which tau means another
    strength. tau = 0.1 is the usual choice.
    """
    return from_pairs_and_ref(task, pairs.ipo(tau, on="demo"))


@register(
    papers.RPO,
    family="preference",
    summary="DPO and an SFT loss on the chosen replies, which stops their likelihood from falling.",
    when="DPO over-optimises: the likelihood of chosen replies collapses.",
)
def rpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.01,
    eta: Annotated[float, Option("Weight of the SFT loss, in units of beta.", at_least=0)] = 0.005,
) -> Method:
    """RPO: regularised preference optimisation.

    L = -log s( beta [lr_w - lr_l] ) - eta beta log pi(y_w|x),  mean over pairs;  lr = log pi(y|x) - log ref(y|x)

    log pi(y_w|x) is summed over the reply, as in the authors' code, whose beta and eta are the defaults. eta = 0 is
    DPO.
    """
    return from_pairs_and_ref(
        task,
        learn.dpo(beta, on="demo"),
        likelihood(coef=-eta * beta, on=learn.CLAIMED, name="sft"),
        then=credit.claim("sft", "demo", tag="chosen"),
    )
