"""Episodes that branch: where the policy is unsure after an answer of the environment, or once, at a drawn turn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from burnish.core import randomness
from burnish.core.parts import Rollout, supplies
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace
from burnish.rollout.episode import Episode
from burnish.rollout.play import note_episodes, of_episodes, play_on, replies_to, take_turn

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
            branches: list[Episode] = []
            for episode, h in zip(running, _entropies(replies, window, who, step), strict=True):
                rise = h - starts.setdefault(id(episode), h)
                game = of[id(episode)]
                if episode.replies and len(game) < budget and rule(rise, _dice(step.clock, episode)):
                    branches.append(episode.branch(len(game)))
                    starts[id(branches[-1])], of[id(branches[-1])] = starts[id(episode)], game
                    game.append(branches[-1])
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


@supplies("tag:branched")
def second_tries(longest: int, shortest: int = 1, *, temperature: float | None = None, who: str = "policy") -> Rollout:
    """Two episodes per task that part at one turn: the same turns before it, then each goes its own way to the end.

    The number of turns H is uniform in shortest .. longest. One episode is played for H turns (fewer where it ends);
    the turn h is uniform among those that it has; the other is played from the state before h. note["turn"] is where h
    stands among the turns of the trace, whose tag is "branched".
    """
    if not 1 <= shortest <= longest:
        raise ValueError(f"episodes of {shortest} to {longest} turns; give shortest from 1 to longest")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        clock = step.clock
        dice = [randomness.rng(clock.seed, "second try", clock.step, clock.tick, task.key) for task in tasks]
        limits = [die.randint(shortest, longest) for die in dice]
        firsts = [Episode(task, 0, step, who, keep=True) for task in tasks]
        for episode in firsts:
            episode.begin()
        _play_to(firsts, limits, step, temperature)
        kept = [(i, e, dice[i].randrange(e.replies)) for i, e in enumerate(firsts) if e.replies and not e.failure]
        seconds = [episode.branch(1, h) for _, episode, h in kept]
        _play_to(seconds, [limits[i] for i, _, _ in kept], step, temperature)
        note_episodes([*firsts, *seconds], step)
        groups = []
        for (i, first, h), second in zip(kept, seconds, strict=True):
            if second.replies > h and not second.failure:
                groups.append(Group(tasks[i], [_parted(episode, h) for episode in (first, second)]))
        return groups

    return of_episodes(f"second_tries({longest})", call, who, writes={"tag:branched"})


def traced(game: list[Episode], paid: bool = True) -> list[Trace]:
    """The traces of episodes, those that branched from one another side by side, numbered in that order."""
    ordered = sorted(game, key=lambda episode: episode.lineage)
    return [replace(episode.trace(paid), index=i) for i, episode in enumerate(ordered)]


def _play_to(episodes: list[Episode], limits: list[int], step: Step, temperature: float | None) -> None:
    """Play each episode on to its own limit of turns."""
    for turns in range(1, max(limits, default=0) + 1):
        going = [episode for episode, limit in zip(episodes, limits, strict=True) if limit >= turns]
        play_on(going, step, turns, temperature=temperature)


def _parted(episode: Episode, h: int) -> Trace:
    trace = episode.trace(True)
    places = [i for i, turn in enumerate(trace.turns) if turn.author == episode.who]
    trace.note["turn"] = places[h]
    trace.tags |= {"branched"}
    return trace


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
