"""Binary Classifier Optimization for LLM Alignment (arXiv 2404.04656)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn
from burnish.core.parts import chain
from burnish.learn.terms import preference_unpaired as unpaired
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.preference_unpaired import labelled_replies
from burnish.papers import Paper

BCO = Paper("bco", "2404.04656", "Binary Classifier Optimization for LLM Alignment")


@register(
    BCO,
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
        **labelled_replies(task),
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
