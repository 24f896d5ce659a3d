"""SLiC-HF: Sequence Likelihood Calibration with Human Feedback (arXiv 2305.10425)."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option
from burnish.methods import register
from burnish.methods.given_pairs import from_pairs
from burnish.papers import Paper

SLIC = Paper("slic", "2305.10425", "SLiC-HF: Sequence Likelihood Calibration with Human Feedback")


def slic_hinge(logp_w: Tensor, logp_l: Tensor, delta: float) -> Tensor:
    """SLiC-HF's rank calibration (Zhao et al., arXiv 2305.10425): max(0, delta - log pi(w) + log pi(l))."""
    return (delta - logp_w + logp_l).clamp(min=0)


def slic_term(delta: float, *, on: Authors = "policy") -> Term:
    """SLiC-HF's rank calibration: max(0, delta - log pi_w + log pi_l)."""
    return pair_term(lambda w, r, _: slic_hinge(w.logp, r.logp, delta), anchor=None, on=on)


@register(
    SLIC,
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
    return from_pairs(
        task,
        slic_term(delta, on="demo"),
        learn.imitate(coef=lam, norm=learn.seq_sum_mean, on=learn.CLAIMED),
        credit=credit.claim("sft", "demo", tag="chosen"),
    )
