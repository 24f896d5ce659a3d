"""Reward models from imperfect data: wrong labels, shifted answers, perturbed texts."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.credit.strength import Cuts, strengths
from burnish.learn.reward_head import meta_step
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, chain, frozen, method, roles, trained
from burnish.methods import opt, papers, register
from burnish.methods.reward import END
from burnish.select.convex import convex_pairs

Share = Annotated[float, Option(at_least=0, at_most=1)]


@register(
    papers.SECRETS_OF_RLHF_II,
    family="reward",
    summary="A reward model that flips, smooths or spreads pairs by how sure an ensemble is of them.",
    when="Some labels are wrong, and you can train an ensemble first (reward_ensemble).",
    trial={"count": 4},
)
def denoised_reward_model(
    task: draw.Source,
    *,
    ensemble: Annotated[
        str | None, Option("The directory of an ensemble (reward_ensemble); without one the model judges itself.")
    ] = None,
    flip: Annotated[
        float, Option("Share of the pairs, the weakest, that are flipped if negative.", at_least=0, below=1)
    ] = 0.2,
    soft: Annotated[
        float, Option("Share of the pairs after them whose labels are smoothed.", at_least=0, below=1)
    ] = 0.2,
    top: Annotated[
        float, Option("Share of the pairs, the strongest, whose labels are smoothed.", at_least=0, below=1)
    ] = 0.1,
    smoothing: Annotated[float, Option("Label smoothing of these pairs.", at_least=0, below=0.5)] = 0.1,
    margin: Annotated[float, Option("What a strength of 1 adds to the margin; 0: no margin.", at_least=0)] = 1.0,
    count: Annotated[int, Option("Training pairs by which the shares are found.", at_least=2)] = 256,
) -> Method:
    """Secrets of RLHF II: labels by preference strength.

    strength = mean over the ensemble's members of r_j(x, y_w) - r_j(x, y_l)
    L = -(1 - e) log s(d) - e log s(-d),  d = r_w - r_l - margin strength;  mean over pairs

    The weakest share `flip` of the pairs is flipped where its strength is negative (then the margin is |strength|); the
    next share `soft` and the strongest share `top` have e = smoothing, the others e = 0. The paper has M = 10 models.
    Departures: the three treatments, separate experiments there, are combined here; its auxiliary contrastive loss
    (SimCSE with dropout) is left out, because burnish trains without dropout. flip = soft = top = margin = 0 is
    reward_model.
    """
    judge = "judge" if ensemble else "rm"
    members = {"judge": frozen(ensemble, outputs=1)} if ensemble else {}
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=chain(END, strengths(task, Cuts(flip, soft, top), smoothing, margin, count, judge=judge)),
        learn=learn.Learn(terms.score_pairs(margin="margin", label_smoothing="smoothing", on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1), **members),
        product="rm",
    )


@register(
    papers.META_RM,
    family="reward",
    summary="A reward model that learns to tell the answers of a shifted policy apart, by a meta step.",
    when="The policy has moved away from the answers that were compared, and there are no new labels.",
)
def meta_rm(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    eta: Annotated[
        float, Option("The step of the ascent on the shifted answers; 0 is reward_model.", at_least=0)
    ] = 1e-3,
    policy: Annotated[str | None, Option("The shifted policy; by default the model of the run.")] = None,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """MetaRM.

    J = 2/n^2 sum over i < j of s(|r_i - r_j|) over n answers of the shifted policy
    theta' = theta + eta grad J(theta);  theta <- theta - alpha grad L(theta'),  L = -log s( r(x, y_w) - r(x, y_l) )

    First order: the gradient at theta' is applied as it is. The answers need no labels. eta = 0 is reward_model.
    """
    sampled = rollout.sample(n, who="shifted", temperature=temperature, tag="sampled")
    return method(
        draw=draw.pairs(task),
        rollout=rollout.join(rollout.given("chosen", "rejected", reader="rm"), sampled),
        select=select.given_pairs(),
        credit=chain(
            END,
            credit.claim("difference", "shifted", tag="sampled", positions="end"),
        ),
        learn=learn.Learn(
            terms.score_pairs(on=learn.CLAIMED),
            terms.differences(on=learn.CLAIMED),
            move=meta_step("difference", eta),
        ),
        models=roles("rm", rm=trained(outputs=1), shifted=frozen(policy or "base")),
        product="rm",
    )


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
