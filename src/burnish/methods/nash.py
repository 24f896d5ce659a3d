"""Preferences as a game: the policy learns to be preferred to an opponent that is made of itself."""

from __future__ import annotations

from burnish.cast.blend import geometric
from burnish.cast.roles import Role, ema, frozen, stage
from burnish.credit.members import member
from burnish.credit.nash import by_bradley_terry, by_comparison, nash_advantage
from burnish.credit.streams import behaviour, ref
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.terms import pg_reinforce
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.parts import Rollout, chain
from burnish.rollout.sample import join, sample
from burnish.score.model import rm_role, scoring
from burnish.tasks.source import Source

_NLHF = "Nash Learning from Human Feedback"


@register(
    family="policy",
    catalogue=("nash-md",),
    title=_NLHF,
    arxiv="2312.00886",
    summary="Learn to be preferred to a geometric mixture of the policy and the reference.",
    when="You have preferences rather than scores, and they are not transitive or no single reward explains them.",
    trial={"n": 4},
)
def nash_md(
    task: Source,
    *,
    n: int = 1,
    beta: float = 0.25,
    tau: float = 0.008,
    temperature: float = 1.0,
    reward_model: str | None = None,
) -> Method:
    """Nash-MD-PG.

    y ~ pi,  y' ~ pi_mix, each token from softmax((1 - beta) log pi + beta log ref)
    L = mean over y of -sum_t A_t log pi(y_t),   A_t = P(y > y') - 1/2 - tau sum over m >= t of log pi(y_m)/ref(y_m)

    P is 1, 1/2 or 0 as the verifier scores y above, like or below y', or sigmoid(r - r') of a reward model; the paper trains a
    preference model that reads both replies. beta = 0 is self-play, beta = 1 the best response to the reference.
    n: replies of each side for each prompt; a reply's P is its mean over the opponent's. beta: the reference's share of the
    opponent; the paper finds 0.125 to 0.375 best. tau: weight of the KL to the starting policy.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    mixed = geometric("ref", beta)
    opponent = sample(n, temperature=temperature, blend=mixed, author="mixture", tag="mixture")
    return _nash(task, opponent, "mixture", {}, n, tau, temperature, reward_model)


@register(
    family="policy",
    catalogue=("nash-md",),
    title=_NLHF,
    arxiv="2312.00886",
    summary="Learn to be preferred to a running average of the policy's weights.",
    when="As `nash_md`, with a past self as the opponent when mixing logits at every token is too slow.",
    trial={"n": 4},
)
def nash_ema(
    task: Source,
    *,
    n: int = 1,
    decay: float = 0.999,
    tau: float = 0.008,
    temperature: float = 1.0,
    reward_model: str | None = None,
) -> Method:
    """Nash-EMA-PG: the opponent's weights follow the policy's, w' = decay w' + (1 - decay) w after every step.

    L = mean over y of -sum_t A_t log pi(y_t),   A_t = P(y > y') - 1/2 - tau sum over m >= t of log pi(y_m)/ref(y_m)

    The rest is as in `nash_md`.
    n: replies of each side for each prompt. decay: the share of its old self that the opponent keeps.
    tau: weight of the KL to the starting policy.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    opponent = sample(n, who="opponent", temperature=temperature, tag="opponent")
    return _nash(task, opponent, "opponent", {"opponent": ema("policy", decay)}, n, tau, temperature, reward_model)


def _nash(
    task: Source, opponent: Rollout, rival: str, roles: dict[str, Role], n: int, tau: float, temperature: float, rm: str | None
) -> Method:  # fmt: skip
    return method(
        draw=prompts(task),
        rollout=join(sample(n, temperature=temperature), opponent),
        score=scoring(task, rm),
        credit=chain(
            behaviour(),
            ref(temperature=temperature),
            nash_advantage(by_bradley_terry if rm else by_comparison, tau, rival=rival),
            member("pg", "policy"),
        ),
        learn=Learn(pg_reinforce(), temperature=temperature),
        cast=stage(ref=frozen("policy"), **roles, **rm_role(rm)),
    )
