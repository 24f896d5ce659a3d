"""Replies that are good or bad by themselves. Given pairs are taken apart; single labelled replies work as well."""

from __future__ import annotations

from typing import Annotated, Any

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import chain
from burnish.credit.kl_baseline import kl_baseline
from burnish.learn.terms import preference_unpaired as unpaired
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, papers, register


def labelled_replies(task: draw.Source) -> dict[str, Any]:
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
        **labelled_replies(task),
        credit=chain(credit.cached_ref(task), credit.label(), kl_baseline()),
        learn=learn.Learn(unpaired.kto(beta, weight_good, weight_bad, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
