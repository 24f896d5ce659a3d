"""Preferences as a game: the policy learns to be preferred to an opponent that is made of itself."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.credit.nash import nash_advantage
from burnish.method import Method, Option, Role, Rollout, chain, ema, frozen, method, roles
from burnish.methods import opt, papers, register

_EachSide = Annotated[int, Option("Replies of each side for each prompt.", at_least=1)]
_KL = Annotated[float, Option("Weight of the KL to the starting policy.", at_least=0)]


@register(
    papers.NASH_MD,
    family="policy",
    summary="Learn to be preferred to a geometric mixture of the policy and the reference.",
    when="You have preferences rather than scores, and they are not transitive or no single reward explains them.",
)
def nash_md(
    task: draw.Source,
    *,
    n: _EachSide = 1,
    beta: Annotated[float, Option("The reference's share of the opponent.", at_least=0, at_most=1)] = 0.25,
    tau: _KL = 0.008,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Nash-MD-PG.

    y ~ pi,  y' ~ pi_mix, each token from softmax((1 - beta) log pi + beta log ref)
    L = mean over y of -sum_t A_t log pi(y_t),   A_t = P(y > y') - 1/2 - tau sum over m >= t of log pi(y_m)/ref(y_m)

    P is that of --preference, which reads both replies as the paper's preference model does; without one it is 1, 1/2
    or 0 as the verifier scores y above, like or below y', or sigmoid(r - r') of a reward model. beta = 0 is self-play,
    beta = 1 the best response to the reference. A reply's P is its mean over the opponent's replies. The paper finds
    beta = 0.125 to 0.375 best.
    """
    mixed = rollout.geometric("ref", beta)
    opponent = rollout.sample(n, blend=mixed, author="mixture", tag="mixture")
    return _nash(task, opponent, "mixture", {}, n, tau, reward_model)


@register(
    papers.NASH_MD,
    family="policy",
    summary="Learn to be preferred to a running average of the policy's weights.",
    when="As `nash_md`, with a past self as the opponent when mixing logits at every token is too slow.",
)
def nash_ema(
    task: draw.Source,
    *,
    n: _EachSide = 1,
    decay: Annotated[float, Option("Share of itself that the opponent keeps.", at_least=0, at_most=1)] = 0.999,
    tau: _KL = 0.008,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Nash-EMA-PG: the opponent's weights follow the policy's, w' = decay w' + (1 - decay) w after every step.

    L = mean over y of -sum_t A_t log pi(y_t),   A_t = P(y > y') - 1/2 - tau sum over m >= t of log pi(y_m)/ref(y_m)

    The rest is as in `nash_md`.
    """
    opponent = rollout.sample(n, who="opponent", tag="opponent")
    return _nash(task, opponent, "opponent", {"opponent": ema("policy", decay)}, n, tau, reward_model)


def _nash(
    task: draw.Source,
    opponent: Rollout,
    rival: str,
    others: dict[str, Role],
    n: int,
    tau: float,
    rm: str | None,
) -> Method:
    return method(
        draw=draw.prompts(task),
        rollout=rollout.join(rollout.sample(n), opponent),
        score=score.scoring(task, rm),
        credit=chain(
            credit.behaviour(),
            credit.ref(),
            nash_advantage(credit.by_bradley_terry if rm else credit.by_comparison, tau, rival=rival),
        ),
        learn=learn.Learn(learn.pg_reinforce()),
        models=roles(ref=frozen("policy"), **others, **score.rm_role(rm)),
    )
