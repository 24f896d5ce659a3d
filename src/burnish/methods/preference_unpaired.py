"""Replies that are good or bad by themselves. Given pairs are taken apart; single labelled replies work as well."""

from __future__ import annotations

from typing import Annotated, Any

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import chain
from burnish.learn.terms import preference_unpaired as unpaired
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, papers, register


def _replies(task: draw.Source) -> dict[str, Any]:
    """Draw, rollout and score of single replies with a label where the rows have them, else of pairs taken apart."""
    if draw.has_labels(task):
        return {"draw": draw.labelled_replies(task), "rollout": rollout.given("demo"), "score": score.given_label()}
    drawn, given = draw.pairs(task), rollout.given("chosen", "rejected")
    return {"draw": drawn, "rollout": given, "score": score.given_order("chosen", "rejected")}


Weight = Annotated[float, Option("Weight of such replies.", at_least=0)]


@register(
    papers.KTO,
    family="preference",
    summary="Learn from single replies that are labelled good or bad.",
    when="You have thumbs up and down, not pairs.",
)
def kto(task: draw.Source, *, beta: opt.Beta = 0.1, weight_good: Weight = 1.0, weight_bad: Weight = 1.0) -> Method:
    """KTO.

    lr = log pi(y|x) - log ref(y|x);  z0 = max(0, mean of lr over prompts with the replies of other prompts), held
    L = weight_good (1 - s(beta (lr - z0))) for good replies, weight_bad (1 - s(beta (z0 - lr))) for bad ones,  mean

    z0 is computed before the update over the whole batch, which must have more than one prompt.
    """
    return method(
        **_replies(task),
        credit=chain(credit.cached_ref(task), credit.label(), credit.kl_baseline()),
        learn=learn.Learn(unpaired.kto(beta, weight_good, weight_bad, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.BCO,
    family="preference",
    summary="A classifier of good and bad replies whose logit is the implicit reward less its running mean.",
    when="As `kto`; also where good and bad replies have different prompts.",
)
def bco(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    remembered: Annotated[
        int, Option("Recent prompts that the density ratio is fitted on; 0 takes all weights as 1.", at_least=0)
    ] = 1024,
) -> Method:
    """BCO.

    r = beta [log pi(y|x) - log ref(y|x)];  delta = running mean of (mean r of good + mean r of bad replies) / 2, held
    L = -log s(r - delta) for good replies, -w log s(-(r - delta)) for bad ones,  mean over replies

    w = p(good | x) / p(bad | x), between 0.5 and 10, is the density ratio of the prompts by logistic regression on
    their mean token embedding; it is 1 where both classes have the same prompts. The paper embeds prompts by another
    model. beta = 0.1 is the usual one; the paper's pairs have 0.01.
    """
    return method(
        **_replies(task),
        credit=chain(
            credit.cached_ref(task),
            credit.streams("policy", logp="now"),
            credit.label(),
            credit.reward_midpoint(credit.Midpoint(), beta),
            credit.density_ratio(credit.PromptMemory(remembered)),
        ),
        learn=learn.Learn(unpaired.bco(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.AOT,
    family="preference",
    summary="Make the rewards of good replies larger than those of bad ones as a distribution.",
    when="As `kto`, by optimal transport between the two classes.",
)
def aot_unpaired(task: draw.Source, *, beta: opt.Beta = 0.01) -> Method:
    """AOT on unpaired replies.

    lr = log pi(y|x) - log ref(y|x), of good and of bad replies, each sorted over the batch
    L = mean over ranks i of -log s( beta (lr_good(i) - lr_bad(i)) )

    Ranks and partners come from the policy before the update; the gradient is that of the whole loss. One good and one
    bad reply are DPO.
    """
    return method(
        **_replies(task),
        credit=chain(
            credit.cached_ref(task), credit.streams("policy", logp="now"), credit.label(), credit.matched_replies()
        ),
        learn=learn.Learn(unpaired.transported_replies(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
