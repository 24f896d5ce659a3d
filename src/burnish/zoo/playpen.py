"""Playpen: An Environment for Exploring Learning Through Conversational Interaction (arXiv 2504.08590)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

PLAYPEN = Paper(
    "playpen", "2504.08590", "Playpen: An Environment for Exploring Learning Through Conversational Interaction"
)

Games = Annotated[int, Option("Episodes of each game.", at_least=2)]
Win = Annotated[float, Option("The least reward of a won episode, where the environment does not say how it ended.")]
_TRIAL = {"task": "guess", "n": 4, "win": 3.0}


@register(
    PLAYPEN,
    family="agents",
    summary="Imitate the episodes that were won.",
    when="A game that the model wins now and then: the first thing to try, before preferences or RL.",
    example="burnish train playpen_sft --task guess",
    trial=_TRIAL,
)
def playpen_sft(task: draw.Source, *, n: Games = 8, win: Win = 1.0) -> Method:
    """Playpen's SFT: L = -(1/N) sum over the N tokens of the policy in won episodes of log pi.

    An environment says how an episode ended in info["outcome"] (success, lose or abort); without it an episode is won
    where its reward is at least `win`. Shares of won, lost and aborted episodes are metrics. Departures: the paper
    imitates recorded games of many models, here the policy's own; one row per episode, of the policy's seat.
    """
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.play(n),
        score=score.outcomes(win),
        credit=credit.claim("sft", "policy", tag="won"),
        learn=learn.Learn(learn.imitate(on=learn.CLAIMED), logp_temperature=1.0),
        models=roles(),
    )


@register(
    PLAYPEN,
    family="agents",
    summary="DPO on won against lost episodes of the same game.",
    when="Games are won and lost about as often, and what separates the two should be learned.",
    example="burnish train playpen_dpo --task guess",
    trial=_TRIAL,
)
def playpen_dpo(
    task: draw.Source,
    *,
    n: Games = 8,
    beta: opt.Beta = 0.1,
    win: Win = 1.0,
) -> Method:
    """Playpen's DPO: pairs are all (won, lost) episodes of one instance of a game.

    L = -log s( beta [lr(won) - lr(lost)] ),  lr = sum over the policy's tokens of log pi/ref,  mean over pairs

    Aborted episodes are in no pair. Games that were only won or only lost give no pair.
    """
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.play(n),
        score=score.outcomes(win),
        select=select.given_pairs("won", "lost"),
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(beta)),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    PLAYPEN,
    family="agents",
    summary="GRPO with the reward of whole episodes.",
    when="Skills that SFT on games would hurt must stay: the paper's GRPO keeps them.",
    example="burnish train playpen_grpo --task guess",
    trial=_TRIAL,
)
def playpen_grpo(
    task: draw.Source,
    *,
    n: Games = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    win: Win = 1.0,
) -> Method:
    """Playpen's GRPO: A = (R - mean R) / std R over the episodes of one instance, on all tokens of the policy.

    L = mean over episodes of the mean over tokens of -min(rho A, clip(rho) A) + beta k3

    An aborted episode has the reward that the environment gave; its share is the metric episodes/aborted. Episodes
    whose environment failed are not trained on. It is `grpo` on a game but for those and for the metrics.
    """
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.play(n),
        score=score.outcomes(win),
        credit=chain(
            credit.group_relative(),
            credit.behaviour(),
            credit.ref(),
            credit.claim("pg", "policy", tag="counted"),
        ),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean, on=learn.CLAIMED), learn.kl_k3(coef=beta)),
        models=roles(ref=frozen("policy")),
    )
