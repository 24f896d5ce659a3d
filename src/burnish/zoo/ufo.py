"""A Simple "Try Again" Can Elicit Multi-Turn LLM Reasoning (arXiv 2507.14295)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from burnish import credit, draw, learn, rollout
from burnish.method import Method, Option, chain, frozen, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.tasks.attempts import Attempt, Attempts

UFO = Paper("ufo", "2507.14295", 'A Simple "Try Again" Can Elicit Multi-Turn LLM Reasoning')


@register(
    UFO,
    family="agents",
    summary="PPO on up to five attempts at a question, with no more feedback than 'think again'.",
    when="A model repeats its wrong answers when it is asked again, and you have single questions with a verifier.",
    example="burnish train ufo --task sort",
    trial={"n": 2, "attempts": 2, "updates": 1},
)
def ufo(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    attempts: Annotated[int, Option("The most attempts of an episode.", at_least=1)] = 5,
    decay: Annotated[
        float, Option("Each attempt before the right one multiplies the reward by it.", at_least=0, at_most=1)
    ] = 0.5,
    repeat: Annotated[float, Option("Penalty of repeated answers, by their share.", at_least=0)] = 0.5,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    kl: opt.KLPenalty = 0.001,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """Unary feedback as observation: the environment says only "Incorrect. Please think again."

    R = decay^t - repeat (1 - E / T), t the wrong attempts before the right one (0 instead of decay^t where none is
    right), T the attempts made, E their different final answers, compared without case and spaces
    A_t by GAE(1, 1) over the policy's tokens with R at its last token and -kl log(pi_old/ref) at each; PPO's losses

    attempts = 1 is PPO on single replies. The released code adds a penalty of 0.1 for a bad format, which belongs to
    the task here.
    """

    def pay(made: Sequence[Attempt], over: bool) -> float:
        if not over:
            return 0.0
        different = len({attempt.answer for attempt in made})
        won = decay ** (len(made) - 1) if made[-1].right else 0.0
        return won - repeat * (1 - different / len(made))

    tried = Attempts(task, attempts, pay)
    return method(
        draw=draw.prompts(tried, "env"),
        rollout=rollout.play(n, turns=attempts),
        credit=chain(
            credit.behaviour(),
            credit.ref(),
            credit.streams("critic", "policy", value="value"),
            credit.token_rewards(kl=kl),
            credit.gae(gamma=1.0, lam=1.0),
            credit.whiten(),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps), updates=updates),
        models=roles(ref=frozen("policy"), critic=trained(outputs=1, lr=critic_lr)),
    )
