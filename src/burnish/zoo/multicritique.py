"""Training Language Models to Critique With Multi-agent Feedback (arXiv 2410.15287)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.learn.terms.focal import focal_pairs
from burnish.method import Method, Option, method, roles, trained
from burnish.methods import papers, register

END = credit.claim("end", "demo", positions="end")


@register(
    papers.MULTICRITIQUE,
    family="reward",
    summary="A reward model with a focal ranking loss, which gives less weight to pairs that are easy already.",
    when="Many pairs are easy, such as pairs of critiques.",
)
def multicritique_rm(
    task: draw.Source, *, gamma: Annotated[float, Option("How much less easy pairs count; 0: not.", at_least=0)] = 2.0
) -> Method:
    """The critique reward model of MultiCritique.

    L = -(1 - 2 max(0, sigmoid(d) - 1/2))^gamma log sigmoid(d),  d = r(x, y_w) - r(x, y_l);  mean over pairs

    RECONSTRUCTED from a review; gamma 0 is Bradley-Terry, and d = 0 gives ln 2 for every gamma. The weight is part of
    the loss: its gradient counts. The paper keeps a pair of critiques only if revisions under the chosen one score
    more on average (MARV): score such revisions with burnish pairs and drop rows with a margin of 0 or less.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=END,
        learn=learn.Learn(focal_pairs(gamma, on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1)),
        product="rm",
    )
