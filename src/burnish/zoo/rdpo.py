"""Provably Robust DPO: Aligning Language Models with Noisy Feedback (arXiv 2403.00409)."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from burnish import draw
from burnish.core.schedules import Schedule
from burnish.learn.maths.preference import Replies
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.learn.terms.preference_pairs import dpo_both_ways
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.given_pairs import from_pairs_and_ref
from burnish.papers import Paper

RDPO = Paper("rdpo", "2403.00409", "Provably Robust DPO: Aligning Language Models with Noisy Feedback")

FlipRate = Annotated[float, Option("Chance that a label is wrong.", at_least=0, below=0.5)]


def unbiased(loss_kept: Tensor, loss_flipped: Tensor, eps: float) -> Tensor:
    """Robust DPO (Chowdhury et al., arXiv 2403.00409): [ (1 - eps) l(w, l) - eps l(l, w) ] / (1 - 2 eps).

    Its mean over labels that are flipped with chance eps is the loss of the true label. It has no lower bound.
    """
    if not 0 <= eps < 0.5:
        raise ValueError(f"a flip rate of {eps} is not in [0, 0.5); at 0.5 labels say nothing")
    return ((1 - eps) * loss_kept - eps * loss_flipped) / (1 - 2 * eps)


def robust(beta: Schedule, eps: float, *, on: Authors = "policy") -> Term:
    """rDPO: the unbiased loss for labels that are wrong with chance eps."""

    def loss(w: Replies, r: Replies, beta: float) -> Tensor:
        kept, flipped = dpo_both_ways(w, r, beta)
        return unbiased(kept, flipped, eps)

    return pair_term(loss, beta=beta, on=on)


@register(
    RDPO,
    family="preference",
    summary="DPO whose mean over wrong labels is the loss of the true ones.",
    when="You know about how many labels are wrong.",
)
def rdpo(task: draw.Source, *, beta: opt.Beta = 0.1, eps: FlipRate = 0.1) -> Method:
    """Robust DPO.

    l(a, b) = -log s( beta [lr_a - lr_b] ),  lr = log pi(y|x) - log ref(y|x)
    L = [ (1 - eps) l(w, l) - eps l(l, w) ] / (1 - 2 eps),  mean over pairs

    Unbiased for labels that are flipped with chance eps, and without a lower bound. eps = 0 is DPO.
    """
    return from_pairs_and_ref(task, robust(beta, eps, on="demo"))
