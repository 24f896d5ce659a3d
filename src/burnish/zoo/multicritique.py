"""Training Language Models to Critique With Multi-agent Feedback (arXiv 2410.15287).

The focal ranking loss of a reward model.
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor
from torch.nn.functional import logsigmoid

from burnish import credit, draw, learn, rollout, select
from burnish.learn.maths.preference import Replies
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option, method, roles, trained
from burnish.methods import papers, register


def focal_ranking(difference: Tensor, gamma: float) -> Tensor:
    """-(1 - 2 max(0, sigmoid(d) - 1/2))^gamma log sigmoid(d) of d [P] (MultiCritique, arXiv 2410.15287)."""
    easy = (difference.sigmoid() - 0.5).clamp(min=0)
    return -((1 - 2 * easy) ** gamma) * logsigmoid(difference) if gamma else -logsigmoid(difference)


def focal_pairs(gamma: float, *, trainee: str = "rm", on: Authors = "policy", name: str = "end") -> Term:
    """The focal ranking loss on the scores at the claimed token, one number a pair."""

    def loss(chosen: Replies, rejected: Replies, _: float) -> Tensor:
        return focal_ranking(chosen.score - rejected.score, gamma)

    return pair_term(loss, anchor=None, output="score", trainee=trainee, on=on, name=name)


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
