"""TÜLU 3: Pushing Frontiers in Open Language Model Post-Training (arXiv 2411.15124)."""

from __future__ import annotations

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, frozen, method, roles
from burnish.methods import opt, papers, register


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
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(learn.dpo_normalised(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
