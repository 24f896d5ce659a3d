"""Axiomatic Preference Modeling for Longform Question Answering (arXiv 2312.02206)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn
from burnish.credit.reward import axiom_kinds
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import register
from burnish.methods.reward import END
from burnish.papers import Paper
from burnish.rollout.axioms import by_axioms
from burnish.select.axioms import axiom_pairs

AXIOMATIC_PREFERENCE_MODEL = Paper(
    "axiomatic-preference-model", "2312.02206", "Axiomatic Preference Modeling for Longform Question Answering"
)


@register(
    AXIOMATIC_PREFERENCE_MODEL,
    family="reward",
    summary="A reward model of pairs that axioms make: useful, relevant, true and grounded answers over others.",
    when="Questions have answers with votes or evidence, and few direct comparisons.",
)
def axiomatic_rm(
    task: draw.Source,
    *,
    usefulness: Annotated[float, Option("Weight of chosen over rejected.", at_least=0)] = 1.0,
    relevance: Annotated[float, Option("Weight of the own answer over one to another question.", at_least=0)] = 1.0,
    truthfulness: Annotated[float, Option("Weight of true over plausible but false.", at_least=0)] = 1.0,
    grounding: Annotated[float, Option("Weight of evidence over none, and of its own over other's.", at_least=0)] = 1.0,
    combination: Annotated[float, Option("Weight of joined answers over one of them.", at_least=0)] = 1.0,
) -> Method:
    """The axiomatic preference model.

    L = mean over the pairs of all axioms of weight(axiom) [ -log s( r(better) - r(worse) ) ]

    Columns: chosen and rejected; optional false, combined and evidence. Accuracy is noted for each axiom. Departure: of
    the paper the abstract was available; loss and weights are reconstructed, and another question is any of the batch,
    not a similar one. With usefulness alone it is reward_model.
    """
    weights = {
        "usefulness": usefulness,
        "relevance": relevance,
        "truthfulness": truthfulness,
        "groundedness": grounding,
        "relevant_grounding": grounding,
        "combination": combination,
    }
    return method(
        draw=draw.pairs(task),
        rollout=by_axioms(),
        select=axiom_pairs(),
        credit=chain(END, axiom_kinds()),
        learn=learn.Learn(terms.score_axioms(weights, on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1)),
        product="rm",
    )
