"""TÜLU 3: Pushing Frontiers in Open Language Model Post-Training (arXiv 2411.15124)."""

from __future__ import annotations

from burnish import draw
from burnish.core.schedules import Schedule
from burnish.learn.maths import dpo_logistic
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.learn.terms.rows import row_mean
from burnish.method import Method
from burnish.methods import opt, papers, register
from burnish.methods.given_pairs import from_pairs_and_ref


def dpo_normalised(beta: Schedule, *, on: Authors = "policy", name: str = "reply") -> Term:
    """DPO's logistic loss on log-ratios that are divided by the length of their reply (Tulu 3)."""
    return pair_term(
        lambda w, r, beta: dpo_logistic(w.logratio, r.logratio, beta), beta=beta, reduce=row_mean, on=on, name=name
    )


@register(
    papers.TULU3,
    family="preference",
    summary="DPO on log-ratios that are divided by the length of the reply.",
    when="DPO's replies grow longer, or the pairs differ much in length.",
)
def dpo_norm(task: draw.Source, *, beta: opt.Beta = 5.0) -> Method:
    """Length-normalised DPO (Tulu 3, section 5).

    L = -log sigmoid( beta/|y_w| log pi(y_w|x)/ref(y_w|x) - beta/|y_l| log pi(y_l|x)/ref(y_l|x) ),  mean over pairs

    beta = 5 is the paper's; it is larger than DPO's because log-ratios are those of a mean token. For replies of one
    length T it is DPO with beta / T.
    """
    return from_pairs_and_ref(task, dpo_normalised(beta, on="demo"))
