"""Satori: Reinforcement Learning with Chain-of-Action-Thought Enhances LLM Reasoning via Autoregressive Search
(arXiv 2502.02508).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, Sampling, chain, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

SATORI = Paper(
    "satori",
    "2502.02508",
    "Satori: Reinforcement Learning with Chain-of-Action-Thought Enhances LLM Reasoning via Autoregressive Search",
)


@register(
    SATORI,
    family="hybrid",
    summary="PPO that restarts in the middle of right and wrong replies, and rewards mending them.",
    when="The model should learn to notice and mend its own mistakes.",
    trial={"n": 2, "updates": 1},
)
def satori(
    task: draw.Source,
    *,
    n: Annotated[int, Option("Replies from the question for each prompt.", at_least=1)] = 4,
    bonus: Annotated[float, Option("For mending a wrong reply, and against breaking a right one.", at_least=0)] = 0.5,
    back: Annotated[int, Option("Most lines that a restart drops.", at_least=0)] = 2,
    cue: Annotated[str, Option("The words after which the policy looks again; none if empty.")] = "Check again.",
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 25.0,
    reward_model: Annotated[
        str | None, Option("The directory of a reward model, whose squashed score is added.")
    ] = None,
) -> Method:
    """Satori's restart-and-explore: replies from the question, and from the middle of a right and of a wrong reply.

    a restart drops the last t lines of a reply, t uniform in 0 .. back, adds the words of `cue`, and the policy goes on
    r = (1[correct] - 1) + sigmoid(standardised reward model, if there is one)
      + bonus [wrong made right] - bonus [right made wrong]
    A_t, R_t by GAE(1, lam), the reward at the last token, A whitened
    L = mean over the policy's tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef max((V - R)^2, (V_clip - R)^2) / 2 ]

    Departures: the meta-action tokens (<|continue|>, <|reflect|>, <|explore|>) and the format tuning that teaches
    them are left out, so an action is a line and plain words stand for <|reflect|> (a model that does not know them
    must first learn to go on from them); the replies that are restarted are of the present policy and of this step,
    where the paper prepares them before training; the reward model is standardised by running moments of its scores,
    where the code uses moments stored with it; n, back, value_coef and updates are choices of ours. critic_lr is the
    released script's: 5e-6 for the critic, 2e-7 for the policy.
    """
    preference = [score.squashed_model(score.Moments("preferences"))] if reward_model else []
    return method(
        draw=draw.prompts(task),
        rollout=rollout.restarted(task, n, back, cue),
        score=chain(
            score.verify(task), *preference, score.reflection_reward(bonus, *(["preference"] if reward_model else []))
        ),
        credit=chain(
            credit.behaviour(),
            credit.streams("critic", value="value"),
            credit.token_rewards(score="shaped", kl=None),
            credit.gae(lam=lam),
            credit.whiten(),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
        models=roles(critic=trained(outputs=1, lr=critic_lr), **score.rm_role(reward_model)),
        sampling=Sampling(0.6),
    )
