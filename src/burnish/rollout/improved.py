"""Attempts at a question, and better replies in the states that they led to (RISE, arXiv 2407.18219)."""

from __future__ import annotations

from dataclasses import replace

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.rollout.play import play
from burnish.rollout.sample import continue_from
from burnish.score.judge import LAST

TAG = "candidate"


@supplies("tag:candidate")
def improved(
    n: int, candidates: int, *, turns: int, temperature: float = 1.0, who: str = "policy", improver: str = "policy"
) -> Rollout:
    """n episodes of attempts per task; in every state that they visit, `candidates` replies by the improver.

    A trace is one candidate after the turns that led to its state (tag "candidate"). note["state"] names the state, as
    the episode's number and the attempt's, and note["earlier"] has the scores of the attempts before it. The attempts
    themselves are context.
    """
    episodes = play(n, turns=turns, temperature=temperature, who=who)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        played = episodes.call(tasks, step)
        states = [
            (place, group.task, trace, k, i)
            for place, group in enumerate(played)
            for trace in group.traces
            for k, i in enumerate(i for i, turn in enumerate(trace.turns) if turn.author == who)
        ]
        starts = [
            (task, trace.turns[:i], (trace.index * 1000 + k) * 1000 + c)
            for _, task, trace, k, i in states
            for c in range(candidates)
        ]
        written = continue_from(starts, improver, step, tag=TAG, temperature=temperature)
        groups = [Group(group.task, []) for group in played]
        for number, (place, _, trace, k, i) in enumerate(states):
            earlier = [trace.turn_scores["reward"][j] for j in range(i) if trace.turns[j].author == who]
            own = groups[place].traces
            for new in written[number * candidates : (number + 1) * candidates]:
                note = {**new.note, "state": [trace.index, k], "earlier": earlier}
                own.append(replace(new, index=len(own), tags=new.tags | {LAST}, note=note))
        return [group for group in groups if group.traces]

    return Rollout(
        name=f"improved({n}, {candidates})",
        call=call,
        reads=episodes.reads | {f"model:{improver}.generate"},
        writes=names("tokens", ("task", "env", who, improver)) | names("mu", improver) | names("tag", TAG),
    )
