"""Which episodes a task is for: those of an agent of its own, with an environment or tools, or none."""

from __future__ import annotations

from burnish.core.parts import Rollout
from burnish.engine.mixture import Blend
from burnish.envs.tools import TAG
from burnish.rollout.hosted import hosted
from burnish.rollout.play import play
from burnish.tasks.source import Source
from burnish.tasks.task_set import task_set

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
    tasks = task_set(source)
    if (agent := tasks.agent) is not None:
        return hosted(agent.call, n, temperature=temperature, who=who, paid=agent.pays, one_trace=one_trace)
    if "env" in tasks.gives:
        judged = TAG if tasks.tools else WHOLE
        paid = rewarded_while_played(tasks)
        return play(n, temperature=temperature, who=who, paid=paid, judged=judged, blend=blend)
    return None


def rewarded_while_played(source: Source) -> bool:
    """Whether episodes get their reward in the rollout, from an environment or an agent, and not from a verifier.

    Of a task with an environment, a reward by --reward takes the place of the environment's and judges whole episodes.
    """
    tasks = task_set(source)
    if tasks.agent is not None:
        return tasks.agent.pays
    return "env" in tasks.gives and not tasks.tools and tasks.rewarded_by != "function"
