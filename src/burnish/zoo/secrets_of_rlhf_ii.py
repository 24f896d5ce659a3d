"""Secrets of RLHF in Large Language Models Part II: Reward Modeling (arXiv 2401.06080)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, select
from burnish.credit.strength import Cuts, strengths
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, chain, frozen, method, roles, trained
from burnish.methods import register
from burnish.methods.reward import END
from burnish.papers import Paper

SECRETS_OF_RLHF_II = Paper(
    "secrets-of-rlhf-ii", "2401.06080", "Secrets of RLHF in Large Language Models Part II: Reward Modeling"
)


@register(
    SECRETS_OF_RLHF_II,
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
