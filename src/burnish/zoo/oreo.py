"""Offline Reinforcement Learning for LLM Multi-Step Reasoning (arXiv 2412.16145)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, frozen, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

OREO = Paper("oreo", "2412.16145", "Offline Reinforcement Learning for LLM Multi-Step Reasoning")

_HOLD = {"token": 0.01, "step": 0.1, "response": 0.3}  # OREO's weights of the KL


@register(
    OREO,
    family="policy",
    summary="Policy and value fitted to the soft Bellman equation on replies of the starting policy.",
    when="You have right and wrong replies, offline, and want credit for single steps; its value model guides search.",
)
def oreo(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    level: Annotated[
        str,
        Option("What an action is: a token, a step (a line) or the response.", choices=("token", "step", "response")),
    ] = "token",
    beta: Annotated[float, Option("Strength of the entropy-regularised objective.", above=0)] = 0.03,
    alpha: Annotated[float | None, Option("Weight of the KL; by default that of the level.", at_least=0)] = None,
    critic_lr: Annotated[
        float, Option("Multiplies the learning rate for the value model.", at_least=0.01, reason=opt.A_FACTOR)
    ] = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """OREO: offline, on right and wrong replies of the starting policy. Actions t are tokens, steps or the reply.

    lr_t = log pi(y_t)/ref(y_t), summed over the action's tokens,  R the reply's score,  V_t before the action
    L_V  = mean over replies of mean over actions of (V_t - R + beta sum_{i>=t} lr_i)^2                      (lr held)
    L_pi = the same mean of (V_t - R + beta lr_t + sg[beta sum_{i>t} lr_i])^2 + alpha KL(pi || ref)(s_t)     (V held)

    The KL is over the whole vocabulary, at every token. V and lr are those of the moment, in every update.
    Departure: replies are drawn afresh from the starting policy as they are needed, where the paper collects them
    beforehand. The paper's alpha is 0.01 for tokens, 0.1 for steps and 0.3 for responses.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature, who="ref"),
        score=score.verify(task, author="ref"),
        credit=chain(
            credit.ref(),
            credit.token_rewards(kl=None, author="ref"),
            credit.monte_carlo(author="ref"),
            credit.actions(level, author="ref"),
        ),
        learn=learn.Learn(
            learn.path_policy(beta, on="ref"),
            learn.path_value(beta, on="ref"),
            learn.kl_exact(coef=_HOLD[level] if alpha is None else alpha, on="ref"),
        ),
        models=roles(ref=frozen("policy"), critic=trained(outputs=1, lr=critic_lr)),
    )
