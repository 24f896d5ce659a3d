"""Training models that score replies."""

from __future__ import annotations

from burnish.cast.roles import stage, trained
from burnish.credit.members import member
from burnish.draw.tasks import pairs
from burnish.learn.learn import Learn
from burnish.learn.terms import score_pairs
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.rollout.given import given
from burnish.score.given import given_order
from burnish.select.compare import best_vs_worst
from burnish.tasks.source import Source


@register(
    family="reward",
    catalogue=("bradley-terry-rm",),
    title="Training language models to follow instructions with human feedback",
    arxiv="2203.02155",
    summary="A Bradley-Terry reward model: one number per reply, from comparisons.",
    when="You have comparisons, and a method that needs a score.",
)
def reward_model(task: Source, *, centre: float = 0.0) -> Method:
    """A Bradley-Terry reward model r(x, y): a linear head on the last token of the reply.

    L = -log sigmoid( r(x, y_w) - r(x, y_l) ) + centre (r_w + r_l)^2,  mean over pairs

    The product is saved as a transformers sequence-classification model with one label; pass its directory as
    --reward-model to other methods.
    centre: keeps scores around 0 (arXiv 2312.09244 uses 0.01); the published loss has none.
    """
    return method(
        draw=pairs(task),
        rollout=given("chosen", "rejected", reader="rm"),
        score=given_order("chosen", "rejected"),
        select=best_vs_worst(),
        credit=member("end", "demo", at="end"),
        learn=Learn(score_pairs(centre=centre)),
        cast=stage("rm", rm=trained(outputs=1)),
        product="rm",
    )
