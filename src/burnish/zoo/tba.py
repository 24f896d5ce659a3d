"""Trajectory Balance with Asynchrony: Decoupling Exploration and Learning for Fast, Scalable LLM Post-Training
(arXiv 2503.18929).
"""

from __future__ import annotations

import math
import random
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core import randomness
from burnish.core.parts import Draw, names, supplies
from burnish.core.schedules import Schedule, at, linear
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.draw.replay import groups_by_task
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.method import Method, Option, Phase, chain, frozen, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.select.remember import Store

TBA = Paper(
    "tba",
    "2503.18929",
    "Trajectory Balance with Asynchrony: Decoupling Exploration and Learning for Fast, Scalable LLM Post-Training",
)


def trajectory_balance(log_ratio: Tensor, reward: Tensor, beta: float) -> Tensor:
    """Trajectory balance with VarGrad's estimate of the normaliser (TBA, arXiv 2503.18929), over the n replies of a
    prompt.

        d_i = log pi(y_i) / ref(y_i) - r_i / beta;   log Z = sg[mean_j -d_j];   L = mean_i (log Z + d_i)^2

    log_ratio is summed over the tokens of a reply. Shapes: [n] -> []. Nothing in it asks who wrote the replies: its
    minimum, 0 for any replies, is pi = ref exp(r / beta) / Z. At pi = ref the gradient is REINFORCE's with the mean of
    the group as its baseline, times 2 / beta; it is that of CoPG's sum over pairs, times (n - 1) / (n beta)^2.
    """
    assert log_ratio.shape == reward.shape
    apart = log_ratio - reward / beta
    return (apart - apart.detach().mean()).square().mean()


@supplies("given:group")
def past_groups(store: Store, recent: float, n: int) -> Draw:
    """TBA's replay (arXiv 2503.18929): as many stored prompts as the run has prompts.

    Each is, with probability `recent`, one of the newest groups as sampled; otherwise a uniformly drawn prompt with n
    of its stored distinct replies, drawn without replacement in proportion to exp(reward).
    """
    if not 0 <= recent <= 1:
        raise ValueError(f"a chance of {recent} for the most recent groups is not between 0 and 1")

    def call(step: Step) -> list[Task]:
        clock = step.clock
        dice = randomness.rng(clock.seed, "past_groups", store.name, clock.step, clock.tick)
        newest = store.groups[-step.settings.prompts :]
        known = groups_by_task(store.groups)
        fresh = sum(dice.random() < recent for _ in newest)
        drawn = dice.sample(newest, fresh)
        for key in dice.sample(list(known), min(len(newest) - fresh, len(known))):
            drawn.append(_better_rewarded(known[key], n, dice))
        return [
            Task("past", group.task.prompt, {**group.task.given, "group": group}, group.task.key) for group in drawn
        ]

    return Draw(
        name=f"past_groups({store.name})",
        call=call,
        reads=frozenset({f"store:{store.name}"}),
        writes=frozenset({"task:prompt"}) | names("given", ("group",)),
        state=(store,),
    )


def _better_rewarded(groups: list[Group], n: int, dice: random.Random) -> Group:
    """n distinct replies of these groups, drawn without replacement in proportion to exp(reward) (Gumbel top-n)."""
    replies: dict[tuple[int, ...], Trace] = {}
    for trace in (trace for group in groups for trace in group.traces):
        replies.setdefault(tuple(trace.tokens.tolist()), trace)
    chances = [(t.scores["reward"] - math.log(max(1e-300, dice.expovariate(1.0))), t) for t in replies.values()]
    best = sorted(chances, key=lambda pair: -pair[0])[:n]
    return Group(groups[0].task, [trace for _, trace in best])


def balance(beta: Schedule, *, coef: Schedule = 1.0, on: Authors = "policy", name: str = "tb") -> Term:
    """TBA: trajectory balance of each group's replies, their rewards in stream "reward" (summed); one
    number a group.
    """

    def loss(live: Live) -> Tensor:
        log_ratio, reward = live.per_row(live.logp - live.ref), live.per_row(live.reward)
        claimed = live.per_row(torch.ones_like(live.reward)) > 0
        mine = [claimed & (live.group == g) for g in range(int(live.group.max()) + 1)]
        now = at(beta, live.clock)
        empty = log_ratio.sum() * 0  # a group of which nothing is claimed
        return torch.stack(
            [trajectory_balance(log_ratio[m], reward[m].to(log_ratio), now) if bool(m.any()) else empty for m in mine]
        )

    return Term(
        name=name, on=on, unit="group", loss=loss, live=("logp",), streams=("ref", "reward"), norm=unit_mean, coef=coef
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
        draw=past_groups(replay, recent, n),
        rollout=rollout.recalled(),
        credit=chain(credit.ref(), credit.token_rewards(kl=None)),
        learn=learn.Learn(balance(beta if beta_end is None else linear(beta, beta_end))),
    )
    return Method(models=roles(ref=frozen("policy")), phases=(search, train))
