"""Which episodes a task is for: those of an agent of its own, with an environment or tools, or none."""

from __future__ import annotations

from burnish.parts import Rollout
from burnish.rollout.hosted import hosted
from burnish.rollout.play import play
from burnish.tasks.hosted import hosted_by
from burnish.tasks.source import Source
from burnish.tasks.tooled import has_tools


def episodes(
    source: Source, n: int, temperature: float, who: str = "policy", one_trace: bool = False
) -> Rollout | None:
    """n episodes for each task of a source; None where its tasks are answered by single replies.

    one_trace: each episode is one trace, its last conversation, also where an agent had several or none
    """
    agent = hosted_by(source)
    if agent is not None:
        return hosted(agent.agent, n, temperature=temperature, who=who, paid=agent.pays, one_trace=one_trace)
    if "env" in source.gives:
        return play(n, temperature=temperature, who=who, paid=not has_tools(source))
    return None


def rewarded_while_played(source: Source) -> bool:
    """Whether episodes get their reward in the rollout, from an environment or an agent, and not from a verifier."""
    agent = hosted_by(source)
    return agent.pays if agent is not None else "env" in source.gives and not has_tools(source)
