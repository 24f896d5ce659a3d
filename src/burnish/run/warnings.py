"""What a user is warned of before a run: phases that it is too short for, and tools that the policy never sees."""

from __future__ import annotations

from dataclasses import replace

import torch

from burnish.core.method import Method, Phase
from burnish.core.roles import Role
from burnish.core.schedules import at
from burnish.core.types import Clock
from burnish.models.chat import Chat
from burnish.tasks.source import Source

LATER = 1 << 40  # a step after every warm-up


def late_phases(method: Method, steps: int) -> str:
    """A warning where a phase begins after the run's last step, or a copy of a model is taken after it; else empty."""
    late = [phase for phase in method.phases if not _runs(phase, steps) and at(phase.times, Clock(LATER, steps)) > 0]
    if not late:
        return _late_copies(method, steps)
    learning = {name for phase in method.phases if _runs(phase, steps) for name in phase.learn.trainees}
    still = "" if method.product in learning else f", so the {method.product} is not trained"
    return (
        f"the phase {late[0].name!r} of {method.name} does not begin within {steps} steps{still}; raise --steps, or "
        f"shorten what comes before it (burnish show {method.name} lists the options)"
    )


def _late_copies(method: Method, steps: int) -> str:
    """A warning where a model that follows another is not renewed before the last step, so nothing ever reads it."""
    stale = [name for name, role in method.models.items() if _renewed(role) and not _used(role, steps)]
    if not stale:
        return ""
    first = method.models[stale[0]]
    return (
        f"the model {stale[0]!r} of {method.name} is to follow {first.follows!r} every {first.every:g} steps, which is "
        f"never within {steps} steps: it stays as it was at the start; raise --steps, or take it more often (burnish "
        f"show {method.name} lists the options)"
    )


def _renewed(role: Role) -> bool:
    """Whether a model is a copy that is meant to be taken in some step of a run; one that is taken once is a start."""
    return role.liveness in ("snapshot", "ema") and role.every + role.offset < LATER


def _used(role: Role, steps: int) -> bool:
    """Whether it is renewed before the last step."""
    return any(role.due(Clock(step, steps)) for step in range(steps - 1)) or steps < 2


def _runs(phase: Phase, steps: int) -> bool:
    return any(round(at(phase.times, Clock(step, steps))) for step in range(steps))


def unseen_tools(source: Source, chat: Chat) -> str:
    """A warning where the first task has tools and its prompt is the same without them; else empty."""
    if not source.gives & {"env", "tools"} or source.size("train") == 0:
        return ""
    task = source.task("train", 0)
    if not task.given.get("tools"):
        return ""
    bare = replace(task, given={key: value for key, value in task.given.items() if key != "tools"})
    if not torch.equal(chat.prompt(task), chat.prompt(bare)):
        return ""
    return (
        "the tasks have tools, and the chat template does not write them: the model is not told their names; "
        "--chat-template tools adds them to the model's own, or describe them in --system-prompt"
    )
