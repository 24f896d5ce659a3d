"""Any method that samples replies, on a task of several turns: replies become episodes.

Where a method says `sample(n)` and `verify`, the policy plays n episodes with the task's environment, which rewards
them; with tools it calls them first, and the verifier judges its last reply; or it answers the questions of an agent
that is a program of its own. Everything after that stays the method's: the advantage of an episode is on all tokens
that the policy wrote, and none on the environment's.
"""

from __future__ import annotations

from dataclasses import replace

from burnish.core.method import Method, Phase, everything
from burnish.core.parts import chain
from burnish.rollout.episodes import episodes, rewarded_while_played
from burnish.tasks.source import Source

SEVERAL_TURNS = frozenset({"env", "agent"})


def played(method: Method, source: Source) -> Method:
    """The method with episodes in place of replies, if the task has several turns; else as it is."""
    if not SEVERAL_TURNS & source.gives:
        return method
    phases = tuple(_in_phase(phase, source) for phase in method.phases)
    for phase in phases:
        if rewarded_while_played(source) and any(atom.kind == "task_reward" for atom in phase.score):
            raise ValueError(
                f"{method.name} samples replies in a way of its own ({phase.rollout.name}), which cannot play with the "
                f"environment of task {source.name!r}; use a method that samples plainly, such as grpo or ppo"
            )
    return replace(method, phases=phases)


def _in_phase(phase: Phase, source: Source) -> Phase:
    if phase.rollout.plain is None or not {f"given:{name}" for name in SEVERAL_TURNS} & phase.draw.writes:
        return phase
    rollout = episodes(source, phase.rollout.plain)
    assert rollout is not None
    kept = [atom for atom in phase.score if not (rewarded_while_played(source) and atom.kind == "task_reward")]
    return replace(phase, rollout=rollout, score=chain(*kept) if kept else everything)
