"""The Trickle-down Impact of Reward (In-)consistency on RLHF (arXiv 2309.16155)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, method, roles, trained
from burnish.methods import papers, register
from burnish.methods.reward import END
from burnish.select.convex import convex_pairs


@register(
    papers.CONTRAST_INSTRUCTIONS,
    family="reward",
    summary="A reward model trained on perturbed copies of its texts as well, those at the rim of their neighbourhood.",
    when="Scores change with the wording: small edits of a reply flip the order.",
)
def convex_reward_model(
    task: draw.Source,
    *,
    copies: Annotated[int, Option("Perturbed copies of each reply; 0 is reward_model.", at_least=0)] = 5,
    share: Annotated[
        float, Option("Share of the words that a copy changes at most, one at least.", above=0, at_most=1)
    ] = 0.05,
) -> Method:
    """ConvexDA, of The Trickle-down Impact of Reward (In-)consistency.

    Each reply has `copies` perturbed versions; their last hidden states are projected to two principal components, and
    the versions that are vertices of the convex hull join the data, with the reply's side of the pair.
    L = -log s( r(x, y_w) - r(x, y_l) ), mean over all pairs

    Departure: the paper embeds texts with SimCSE; here the reward model's own states are used. The paper's other half,
    RewardFusion, is the scorer `fused`; its benchmark is `burnish eval-reward`.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=convex_pairs(copies, share),
        credit=END,
        learn=learn.Learn(terms.score_pairs(on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1)),
        product="rm",
    )
