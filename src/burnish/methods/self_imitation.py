"""Learning from one's own samples as if they were demonstrations: the kept, the best, the relabelled, the explained."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, papers, register


@register(
    papers.REJECTION_SAMPLING,
    family="imitation",
    summary="Sample, keep the verified, imitate them.",
    when="You have a verifier and want nothing more than SFT.",
)
def rejection_sampling(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    most: Annotated[int, Option("Kept replies of one prompt, so that easy prompts do not dominate.", at_least=1)] = 10,
    updates: opt.Updates = 1,
) -> Method:
    """Rejection-sampling fine-tuning, or expert iteration (ReST-EM, STaR).

    E step: y_i ~ pi(.|x), i = 1..n, kept where the verifier accepts them (different ones, at most `most` of a prompt)
    M step: L = -(1 / N) sum over the N tokens of the kept replies of log pi

    Departures: ReST-EM samples for all its problems in a round, and both it and STaR train the base model anew on
    each round's replies; here a round is one step and the policy goes on from where it is, as in expert iteration.
    STaR's rationalisation (a hint with the answer, where all replies fail) is left out. n, most and temperature are
    choices of ours.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        select=select.keep_verified(most),
        learn=learn.Learn(learn.imitate(), updates=updates, logp_temperature=1.0),
        models=roles(),
    )


@register(
    papers.RAFT,
    family="imitation",
    summary="Sample, rank by reward, imitate the best of each prompt.",
    when="You have a reward model and want nothing more than SFT.",
)
def raft(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    best: Annotated[int, Option("Replies of each prompt that are kept.", at_least=1)] = 1,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Reward-ranked fine-tuning.

    y* = argmax over y_1..y_n ~ pi(.|x) of r(x, y);   L = -(1 / N) sum over the N tokens of the chosen replies of log pi

    Ranking is local, within each prompt. Left out: ranking over all prompts together, and the optional penalty beta
    log pi/ref in the reward. n and temperature are choices of ours. Ties go to the earlier sample, so that a prompt
    of equal replies still teaches.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        select=select.keep_best(best),
        learn=learn.Learn(learn.imitate(), updates=updates, logp_temperature=1.0),
        models=roles(**score.rm_role(reward_model)),
    )
