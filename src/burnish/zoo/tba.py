"""Trajectory Balance with Asynchrony: Decoupling Exploration and Learning for Fast, Scalable LLM Post-Training
(arXiv 2503.18929).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.schedules import linear
from burnish.method import Method, Option, Phase, chain, frozen, roles
from burnish.methods import opt, register
from burnish.papers import Paper

TBA = Paper(
    "tba",
    "2503.18929",
    "Trajectory Balance with Asynchrony: Decoupling Exploration and Learning for Fast, Scalable LLM Post-Training",
)


@register(
    TBA,
    family="policy",
    summary="Trajectory balance on a replay of past replies: right for replies of any age, and it seeks variety.",
    when="Sampling runs far ahead of learning (`--lag`), or good replies are rare and worth learning from again.",
    example="burnish train tba --lag 1",
)
def tba(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    beta: opt.Beta = 0.1,
    beta_end: Annotated[float | None, Option("Where beta moves to, in a line over the run.", above=0)] = None,
    recent: Annotated[float, Option("The chance of the newest groups.", at_least=0, at_most=1)] = 0.95,
    updates: Annotated[int, Option("Updates a step, between two synchronisations.", at_least=1)] = 2,
    capacity: Annotated[int, Option("Groups that the replay holds.", at_least=1)] = 512,
) -> Method:
    """Trajectory balance with asynchrony.

    d_i = log pi(y_i)/ref(y_i) - r_i / beta;   log Z = sg[mean_j -d_j] over the n replies to a prompt
    L = mean over prompts of mean over replies of (log Z + d_i)^2

    Each step samples and scores replies into a replay (with `--lag`, ahead of learning), then makes `updates`
    updates, each on as many remembered prompts as a step has. For each of these, with the chance `recent`: one of
    the newest groups; else any prompt, and n of its remembered replies, the likelier the better they were rewarded.
    The loss holds for replies of any policy, so nothing is corrected for their age. Checked against the authors'
    code (github.com/bbartoldson/TBA): the loss, log Z, the coin for each prompt, replies by exp(reward) without
    replacement, the frozen reference and 2 updates between synchronisations are the same. It takes n = 20; on GSM8K
    beta = 0.014 to 0.004 and recent = 0.95, on TL;DR 1 to 0.05 and 0.5. Departures: the code samples up to 1.2 n
    replies to a prompt before it draws n, and goes through all old prompts before it takes one twice; here n are
    sampled, and old prompts are drawn anew for each update. Its 500 replies before the first update are left out,
    and the replay has one limit for all prompts.
    """
    replay = select.Store("replay", capacity)
    search = Phase(
        name="search",
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        select=select.remember(replay, "score:reward", "mu:policy"),
        learn=learn.Learn(),
    )
    train = Phase(
        name="train",
        times=updates,
        draw=draw.past_groups(replay, recent, n),
        rollout=rollout.recalled(),
        credit=chain(credit.ref(), credit.token_rewards(kl=None)),
        learn=learn.Learn(learn.balance(beta if beta_end is None else linear(beta, beta_end))),
    )
    return Method(models=roles(ref=frozen("policy")), phases=(search, train))
