"""Agentic Reinforced Policy Optimization (arXiv 2507.19849)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

import torch

from burnish import credit, draw, learn, score
from burnish.core import randomness
from burnish.core.parts import Rollout, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace
from burnish.method import Method, Option, Part, chain, everything, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.episode import Episode
from burnish.rollout.episodes import rewarded_while_played
from burnish.rollout.play import note_episodes, of_episodes, play_on, replies_to, take_turn
from burnish.rollout.replays import branched

ARPO = Paper("arpo", "2507.19849", "Agentic Reinforced Policy Optimization")

METRICS = (("branches", "What was kept", "share of the episodes that branched from another one"),)


@supplies("claim:*")
def claim_copies(term: str, *authors: str) -> Part:
    """The term trains on these authors' tokens in every trace: a turn that k traces share counts k times."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams[f"claim:{term}"] = trace.by(*authors)

    return per_trace(
        write,
        name=f"claim_copies({term})",
        reads=frozenset(f"tokens:{author}" for author in authors),
        writes=frozenset({f"claim:{term}"}),
    )


def shared_mean(stream: str = "adv") -> Part:
    """On a turn that several traces of a group share, the mean of their values (ARPO's hard advantage)."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            places: dict[int, list[tuple[Trace, int, int]]] = {}
            for trace in group.traces:
                for turn, start, end in trace.spans():
                    places.setdefault(id(turn), []).append((trace, start, end))
            for shared in (found for found in places.values() if len(found) > 1):
                mean = torch.stack([trace.streams[stream][start:end] for trace, start, end in shared]).mean(0)
                for trace, start, end in shared:
                    trace.streams[stream][start:end] = mean
        return groups

    name = frozenset({f"stream:{stream}"})
    return Part(name=f"shared_mean({stream})", call=call, reads=name, updates=name)


Branches = Callable[[float, float], bool]  # (rise of the entropy, a uniform random number) -> whether to branch


def by_chance(alpha: float, beta: float) -> Branches:
    """Branch with probability alpha + beta (H_t - H_0), as ARPO's code does (alpha 0.5, beta 0.2)."""
    return lambda rise, dice: dice < alpha + beta * rise


def above(alpha: float, beta: float, tau: float) -> Branches:
    """Branch where alpha + beta (H_t - H_0) > tau: the rule of ARPO's paper."""
    return lambda rise, dice: alpha + beta * rise > tau


@supplies("tokens:env", "turn_score:reward", "score:reward")
def branching(
    budget: int,
    fresh: int,
    rule: Branches,
    *,
    window: int = 20,
    temperature: float | None = None,
    who: str = "policy",
    paid: bool = True,
) -> Rollout:
    """`budget` episodes per task: `fresh` ones from the start, branches of them, and fresh ones for what is left.

    H = sum over the first `window` tokens of a reply of the policy's entropy, divided by ln of the vocabulary's size.
    H_0 is that of an episode's first reply, H_t that of the reply after an answer of the environment. Where the rule
    says so, one more reply is sampled in the same state, and a branch continues with it: it shares all turns before and
    has an environment of its own in the same state. An episode branches at most once at each of its turns. Traces
    stand in the order of the tree, so that those with a common beginning are neighbours.
    """
    if not 1 <= fresh <= budget:
        raise ValueError(f"{fresh} fresh episodes of a budget of {budget}; give 1 to {budget} of them")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        games = [[Episode(task, i, step, who) for i in range(fresh)] for task in tasks]
        of = {id(episode): game for game in games for episode in game}
        starts: dict[int, float] = {}  # H_0 by the id of the episode
        for episode in (episode for game in games for episode in game):
            episode.begin()
        while running := [e for game in games for e in game if not e.over and e.replies < step.settings.turns]:
            replies = replies_to(running, step, temperature=temperature)
            chosen: list[tuple[Episode, int, None]] = []
            sizes = {id(game): len(game) for game in games}
            for episode, h in zip(running, _entropies(replies, window, who, step), strict=True):
                rise = h - starts.setdefault(id(episode), h)
                game = of[id(episode)]
                if episode.replies and sizes[id(game)] < budget and rule(rise, _dice(step.clock, episode)):
                    chosen.append((episode, sizes[id(game)], None))
                    sizes[id(game)] += 1
            branches = branched(chosen)
            for (episode, *_), branch in zip(chosen, branches, strict=True):
                game = of[id(episode)]
                starts[id(branch)], of[id(branch)] = starts[id(episode)], game
                game.append(branch)
            branches = [branch for branch in branches if not branch.over]
            take_turn([*running, *branches], [*replies, *replies_to(branches, step, temperature=temperature)])
        grown = [len(game) - fresh for game in games]
        for task, game in zip(tasks, games, strict=True):
            game += [Episode(task, i, step, who) for i in range(len(game), budget)]
        late = [e for game, more in zip(games, grown, strict=True) for e in game[fresh + more :]]
        for episode in late:
            episode.begin()
        play_on(late, step, step.settings.turns, temperature=temperature)
        note_episodes([e for game in games for e in game], step)
        step.notes.add("branches", sum(grown), len(games) * budget)
        return [Group(task, traced(game, paid)) for task, game in zip(tasks, games, strict=True)]

    return of_episodes(f"branching({fresh} of {budget})", call, who, paid=paid, reads={f"model:{who}.entropy"})


def traced(game: list[Episode], paid: bool = True) -> list[Trace]:
    """The traces of episodes, those that branched from one another side by side, numbered in that order."""
    ordered = sorted(game, key=lambda episode: episode.lineage)
    return [replace(episode.trace(paid), index=i) for i, episode in enumerate(ordered)]


def _entropies(replies: list[Trace], window: int, who: str, step: Step) -> list[float]:
    """Of each trace, the policy's entropy summed over the first tokens of its last turn, over ln |vocabulary|."""
    masks = []
    for trace in replies:
        mask = torch.zeros(len(trace), dtype=torch.bool)
        start = len(trace) - len(trace.turns[-1])
        mask[start : start + window] = True
        masks.append(mask)
    model = step.models[who]
    assert model.chat.vocabulary is not None
    found = model.streams(replies, masks, {"entropy"}, step.settings.token_budget)
    most = math.log(model.chat.vocabulary)
    return [float(one["entropy"][mask].sum()) / most if one else 0.0 for one, mask in zip(found, masks, strict=True)]


def _dice(clock: Clock, episode: Episode) -> float:
    where = (clock.step, clock.tick, episode.task.key, episode.index, episode.replies)
    return randomness.rng(clock.seed, "branch", *where).random()


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
    dual: opt.DualClip = 3.0,
    updates: opt.Updates = 1,
) -> Method:
    """Agentic reinforced policy optimisation.

    H_t = sum over the first `window` tokens of the reply after an answer of the environment of the entropy, / ln |V|
    branch with chance alpha + beta (H_t - H_0), at most once per episode and turn, until there are `budget` episodes
    A_i = (R_i - mean R) / std R over all episodes of the task;  L = mean over tokens of -min(rho A, clip(rho) A),
    and at most -dual A where A < 0

    A turn that k branches share is trained k times, with the advantage of each ("soft", the default), or with the mean
    of their advantages ("hard"). The two have the same gradient where nothing is clipped. budget = fresh is GRPO over
    episodes. `alpha`, `beta`, `dual`, 16 and 8 are the released code's, whose rule is random; `tau` gives the paper's
    rule, alpha + beta (H_t - H_0) > tau. The paper takes the window after the answer, as here; the released code takes
    it before. Departures: the whole distribution's entropy, where the code has the ten likeliest tokens; H_0 is of the
    episode's own first reply. The paper's reward (format, F1, a bonus for two tools) belongs to the task.
    """
    if advantage not in _SHARED:
        raise ValueError(f"advantage is {advantage!r}; choose one of {', '.join(_SHARED)}")
    paid = rewarded_while_played(task)
    rule = by_chance(alpha, beta) if tau is None else above(alpha, beta, tau)
    return method(
        draw=draw.prompts(task, "env"),
        rollout=branching(budget, fresh, rule, window=window, paid=paid),
        score=everything if paid else score.verify(task),
        credit=chain(
            credit.group_relative(),
            _SHARED[advantage],
            credit.behaviour(),
            claim_copies("pg", "policy"),
        ),
        learn=learn.Learn(learn.pg_clip(eps, dual=dual, on=learn.CLAIMED), updates=updates),
        models=roles(),
    )


_SHARED: dict[str, Part] = {"soft": everything, "hard": shared_mean()}
