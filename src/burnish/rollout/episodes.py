"""Which episodes a task is for: those of an agent of its own, with an environment or tools, or none."""

from __future__ import annotations

from burnish.core.parts import Rollout
from burnish.engine.mixture import Blend
from burnish.envs.tools import TAG
from burnish.rollout.hosted import hosted
from burnish.rollout.play import play
from burnish.tasks.hosted import hosted_by
from burnish.tasks.rewarded import is_rewarded
from burnish.tasks.source import Source
from burnish.tasks.tooled import has_tools

WHOLE = "episode"  # the tag of episodes that a reward judges as a whole


def episodes(
    source: Source,
    n: int,
    who: str = "policy",
    one_trace: bool = False,
    blend: Blend | None = None,
    temperature: float | None = None,
) -> Rollout | None:
    """n episodes for each task of a source; None where its tasks are answered by single replies.

    one_trace: each episode is one trace, its last conversation, also where an agent had several or none
    blend: other models that are mixed into every token; not where an agent of its own asks
    """
    agent = hosted_by(source)
    if agent is not None:
        return hosted(agent.agent, n, temperature=temperature, who=who, paid=agent.pays, one_trace=one_trace)
    if "env" in source.gives:
        judged = TAG if has_tools(source) else WHOLE
        paid = rewarded_while_played(source)
        return play(n, temperature=temperature, who=who, paid=paid, judged=judged, blend=blend)
    return None


def rewarded_while_played(source: Source) -> bool:
    """Whether episodes get their reward in the rollout, from an environment or an agent, and not from a verifier.

    Of a task with an environment, a reward by --reward takes the place of the environment's and judges whole episodes.
    """
    agent = hosted_by(source)
    if agent is not None:
        return agent.pays
    return "env" in source.gives and not has_tools(source) and not is_rewarded(source)
