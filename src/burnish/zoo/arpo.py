"""Agentic Reinforced Policy Optimization (arXiv 2507.19849)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, Part, chain, everything, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.episodes import rewarded_while_played

ARPO = Paper("arpo", "2507.19849", "Agentic Reinforced Policy Optimization")


@register(
    ARPO,
    family="agents",
    summary="GRPO over episodes that branch where the policy is unsure after a tool's answer.",
    when="Tool calls or environment steps are expensive, and uncertainty rises after their answers.",
    example="burnish train arpo --task guess",
    trial={"task": "guess", "budget": 4, "fresh": 2, "alpha": 0.9},
)
def arpo(
    task: draw.Source,
    *,
    budget: Annotated[int, Option("Episodes of each task, branches included.", at_least=2)] = 16,
    fresh: Annotated[int, Option("Episodes that are started before any branches.", at_least=1)] = 8,
    alpha: Annotated[float, Option("The chance to branch where the entropy has not changed.")] = 0.5,
    beta: Annotated[float, Option("How much the chance to branch rises with the entropy.", at_least=0)] = 0.2,
    tau: Annotated[float | None, Option("Branch where the chance is above it; unset: branch with that chance.")] = None,
    window: Annotated[int, Option("Tokens of a reply whose entropy is summed.", at_least=1)] = 20,
    advantage: Annotated[
        str, Option("Of turns that branches share: soft (each branch's own) or hard (their mean).")
    ] = "soft",
    eps: opt.ClipRange = 0.2,
    updates: opt.Updates = 1,
) -> Method:
    """Agentic reinforced policy optimisation.

    H_t = sum over the first `window` tokens of the reply after an answer of the environment of the entropy, / ln |V|
    branch with chance alpha + beta (H_t - H_0), at most once per episode and turn, until there are `budget` episodes
    A_i = (R_i - mean R) / std R over all episodes of the task;  L = mean over tokens of -min(rho A, clip(rho) A)

    A turn that k branches share is trained k times, with the advantage of each ("soft", the default), or with the mean
    of their advantages ("hard"). The two have the same gradient where nothing is clipped. budget = fresh is GRPO over
    episodes. `alpha`, `beta`, 16 and 8 are the released code's, whose rule is random; `tau` gives the paper's rule,
    alpha + beta (H_t - H_0) > tau. The paper takes the window after the answer, as here; the released code takes it
    before. Departures: the whole distribution's entropy, where the code has the ten likeliest tokens; H_0 is of the
    episode's own first reply. The paper's reward (format, F1, a bonus for two tools) belongs to the task.
    """
    if advantage not in _SHARED:
        raise ValueError(f"advantage is {advantage!r}; choose one of {', '.join(_SHARED)}")
    paid = rewarded_while_played(task)
    rule = rollout.by_chance(alpha, beta) if tau is None else rollout.above(alpha, beta, tau)
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.branching(budget, fresh, rule, window=window, paid=paid),
        score=everything if paid else score.verify(task),
        credit=chain(
            credit.group_relative(),
            _SHARED[advantage],
            credit.behaviour(),
            credit.claim_copies("pg", "policy"),
        ),
        learn=learn.Learn(learn.pg_clip(eps, on=learn.CLAIMED), updates=updates),
        models=roles(),
    )


_SHARED: dict[str, Part] = {"soft": everything, "hard": credit.shared_mean()}
