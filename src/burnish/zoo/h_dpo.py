"""Entropy Controllable Direct Preference Optimization (arXiv 2411.07595)."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from burnish import draw
from burnish.core.schedules import Schedule
from burnish.learn.maths.preference import Replies, logistic
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.given_pairs import from_pairs_and_ref
from burnish.papers import Paper

H_DPO = Paper("h-dpo", "2411.07595", "Entropy Controllable Direct Preference Optimization")


def entropy_controlled_margin(
    logp_w: Tensor, logp_l: Tensor, ref_w: Tensor, ref_l: Tensor, alpha: float, beta: float
) -> Tensor:
    """The margin of H-DPO (Omura et al., arXiv 2411.07595), per pair.

        m = alpha beta (log pi_w - log pi_l) - beta (log ref_w - log ref_l)

    The optimum of -log s(margin) is pi ~ ref^(1/alpha) exp(r / (alpha beta)): alpha below 1 sharpens it, above 1
    flattens it. alpha = 1 is DPO's margin.
    """
    return alpha * beta * (logp_w - logp_l) - beta * (ref_w - ref_l)


def entropy_controlled(beta: Schedule, alpha: float, *, on: Authors = "policy") -> Term:
    """H-DPO: the logistic loss of alpha beta (log pi_w - log pi_l) - beta (log ref_w - log ref_l)."""

    def loss(w: Replies, r: Replies, beta: float) -> Tensor:
        refs = w.logp - w.logratio, r.logp - r.logratio
        return logistic(entropy_controlled_margin(w.logp, r.logp, *refs, alpha, beta))

    return pair_term(loss, beta=beta, on=on)


@register(
    H_DPO,
    family="preference",
    summary="DPO whose coefficient on the policy's own log-probs controls its entropy.",
    when="The policy should become sharper (alpha below 1) or more diverse (above 1) than DPO makes it.",
)
def h_dpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    alpha: Annotated[float, Option("Weight of the policy's entropy; 1 is DPO, below 1 is sharper.", above=0)] = 0.95,
) -> Method:
    """H-DPO.

    L = -log s( beta [alpha log pi(y_w|x) - log ref(y_w|x)] - beta [alpha log pi(y_l|x) - log ref(y_l|x)] )

    Mean over pairs. Its optimum is ref^(1/alpha) exp(r / (alpha beta)). alpha = 1 is DPO. The paper's text was not
    available: the formula is that of two agreeing summaries, and alpha and beta are a choice of ours.
    """
    return from_pairs_and_ref(task, entropy_controlled(beta, alpha, on="demo"))
