"""Failed episodes of an expert that the policy takes over, from states along them."""

from __future__ import annotations

from burnish.core.parts import Rollout, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.rollout.episode import Episode
from burnish.rollout.play import note_episodes, of_episodes, play_on
from burnish.rollout.recorded import played_again


def spaced(turns: int, starts: int) -> list[int]:
    """At most `starts` of the turns 0 .. turns - 1, evenly spaced, the first among them."""
    return sorted({k * turns // starts for k in range(starts)}) if turns else []


def harmful(starts: list[int], won: list[bool]) -> set[int]:
    """The turns of the expert between a state from which the policy won and the next start, from which it did not."""
    steps = zip(zip(starts, won, strict=True), zip(starts[1:], won[1:], strict=True), strict=False)
    return {k for (a, before), (b, after) in steps if before and not after for k in range(a, b)}


@supplies("tokens:*", "tag:takeover")
def takeovers(
    n: int,
    starts: int,
    win: float,
    *,
    temperature: float = 1.0,
    who: str = "policy",
    expert: str = "expert",
    recorded: str | None = None,
) -> Rollout:
    """n episodes of the policy, one of the expert, and, where that one fails, takeovers: the policy plays it to the end
    from at most `starts` evenly spaced states.

    recorded: the key in Task.given of the expert's episode, whose actions are played again in the environment; without
    it, the model `expert` plays. Either way its turns have the author `expert`, and the environment rewards them.
    An episode fails if its reward is below `win`. A takeover (tag "takeover") shares the expert's turns up to its
    start; its note["harmful"] lists those of them (as places among its turns) that led from a state from which the
    policy won to one from which it did not.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        masters = [_master(task, step) for task in tasks]
        own = [[Episode(task, 1 + i, step, who) for i in range(n)] for task in tasks]
        for episode in [*masters, *(e for some in own for e in some)]:
            if not episode.begun:
                episode.begin()
        if recorded is None:
            play_on(masters, step, step.settings.turns, temperature=temperature)
        play_on([e for some in own for e in some], step, step.settings.turns, temperature=temperature)
        places = [[] if m.failure or m.earned >= win else spaced(m.replies, starts) for m in masters]
        taken = [
            [_handed(master.branch(1 + n + j, k), who, step) for j, k in enumerate(at)]
            for master, at in zip(masters, places, strict=True)
        ]
        play_on([e for some in taken for e in some], step, step.settings.turns, temperature=temperature)
        note_episodes([*(masters if recorded else ()), *(e for some in (*own, *taken) for e in some)], step)
        step.notes.add("expert_failed", sum(m.earned < win for m in masters), max(1, len(masters)))
        groups = []
        for task, master, mine, at, some in zip(tasks, masters, own, places, taken, strict=True):
            wrong = harmful(at, [e.earned >= win and not e.failure for e in some])
            traces = [e.trace(True) for e in (master, *mine) if e.replies]
            traces += [_takeover(e, expert, wrong) for e in some if e.replies]
            groups.append(Group(task, traces))
        return groups

    def _master(task: Task, step: Step) -> Episode:
        if recorded is None:
            return Episode(task, 0, step, expert, keep=True)
        return played_again(task, recorded, step, who, expert)

    if recorded is None:
        return of_episodes(f"takeovers({n}, {starts})", call, who, expert, writes={"tag:takeover"})
    given = {f"given:{recorded}"}
    return of_episodes(f"takeovers({n}, {starts})", call, who, reads=given, writes={"tag:takeover", f"tokens:{expert}"})


def _handed(episode: Episode, who: str, step: Step) -> Episode:
    """The episode with another player from here on."""
    episode.hand_to(who)
    return episode


def _takeover(episode: Episode, expert: str, wrong: set[int]) -> Trace:
    trace = episode.trace(True)
    places = [i for i, turn in enumerate(trace.turns) if turn.author == expert]
    trace.note["harmful"] = [places[k] for k in sorted(wrong) if k < len(places)]
    trace.tags |= {"takeover"}
    return trace
