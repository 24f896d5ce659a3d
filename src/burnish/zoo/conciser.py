"""Walk Before You Run! Concise LLM Reasoning via Reinforcement Learning (arXiv 2505.21178)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.method import Method, Option, Phase, chain, roles
from burnish.methods import opt, register
from burnish.methods.compositions import from_share, until_share
from burnish.papers import Paper
from burnish.score.lengths import reply_length, right_replies
from burnish.select.outcomes import keep_groups

CONCISER = Paper("conciser", "2505.21178", "Walk Before You Run! Concise LLM Reasoning via Reinforcement Learning")


@supplies("score:concise")
def brevity_once_right(*, author: str = "policy") -> Part:
    """scores["concise"] = 1 - |y| / L if all replies to the prompt are correct, L = max_new_tokens; else the reward.

    Length counts only for solved prompts (ConciseR, arXiv 2505.21178).
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        sure = 0
        for group in groups:
            all_right = right_replies(group) == len(group.traces)
            sure += all_right
            for trace in group.traces:
                spare = 1 - reply_length(trace, author) / step.settings.max_new_tokens
                trace.scores["concise"] = spare if all_right else trace.scores["reward"]
        step.notes.add("all_right_groups", sure, len(groups))
        return groups

    return Part(
        name="brevity_once_right",
        call=call,
        reads=frozenset({"score:reward", f"tokens:{author}"}),
        writes=frozenset({"score:concise"}),
    )


@supplies("tag:mixed")
def partly_right() -> Part:
    """Only groups with a right and a wrong reply, tagged "mixed": `filters.mixed` by verdicts, whatever shaped the
    scores.
    """
    return keep_groups("mixed", lambda right, n: 0 < right < n)


@register(
    CONCISER,
    family="policy",
    summary="First learn to be right; then, where every reply is right, to be short.",
    when="You want accuracy first and brevity after, and never brevity at the price of accuracy.",
)
def conciser(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    walk_share: Annotated[float, Option("Share of the run's steps in the first stage.", at_least=0, at_most=1)] = 0.8,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    entropy: opt.EntropyCoef = 0.001,
    updates: opt.Updates = 1,
) -> Method:
    """ConciseR: two stages of group-relative learning.

    walk (GRPO++)  A_i = (r_i - mean r) / (std r + 1e-6) on groups with right and wrong replies alone (dynamic sampling)
                   L = mean over tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A) - entropy H(pi)
    run (L-GRPO)   the same loss without the entropy bonus, with r_i = 1 - |y_i| / L_max where all replies to the prompt
                   are right, else r_i as before; L_max the longest allowed reply

    The stages and their parts are the paper's; its constants were not found, those of clip-higher are DAPO's.
    Departures: groups that dynamic sampling drops are not replaced by others, and "the second stage, using fewer
    steps" is the run's last fifth.
    """
    walk = Phase(
        name="walk",
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        select=partly_right(),
        credit=chain(
            credit.group_relative(),
            credit.behaviour(),
            credit.claim("pg", "policy", tag="mixed"),
            credit.claim("entropy", "policy", tag="mixed"),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps_low, eps_high, on=learn.CLAIMED),
            learn.entropy_bonus(coef=entropy, on=learn.CLAIMED),
            updates=updates,
        ),
        times=until_share(walk_share),
    )
    run = Phase(
        name="run",
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.verify(task), brevity_once_right()),
        credit=chain(credit.group_relative(score="concise"), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps_low, eps_high), updates=updates),
        times=from_share(walk_share),
    )
    return Method(models=roles(), phases=(walk, run))
