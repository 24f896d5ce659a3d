"""Behavior Injection: Preparing Language Models for Reinforcement Learning (arXiv 2505.18917).

Demonstrations with behaviours injected that reinforcement learning can build on (BRIDGE, arXiv 2505.18917).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Annotated

from burnish import draw, learn
from burnish.core import randomness
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.given import given_trace

BEHAVIOR_INJECTION = Paper(
    "behavior-injection", "2505.18917", "Behavior Injection: Preparing Language Models for Reinforcement Learning"
)


@supplies("tokens:demo")
def injected(chance: float, *, column: str = "demo", author: str = "demo", reader: str = "policy") -> Rollout:
    """One trace per demonstration, in which steps are preceded, each with this chance, by the two
    behaviours of BRIDGE.
    """
    if not 0 <= chance <= 1:
        raise ValueError(f"a chance of {chance} is not between 0 and 1")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        chat, context, clock = step.models[reader].chat, step.models[reader].context, step.clock
        groups = []
        for task in tasks:
            rng = randomness.rng(clock.seed, "injected", clock.step, clock.tick, task.key)
            richer = replace(task, given={**task.given, column: with_behaviours(str(task.given[column]), chance, rng)})
            groups.append(
                Group(
                    task, [given_trace(richer, column, author, chat, context, 0, step.settings.on_long == "truncate")]
                )
            )
        return groups

    return Rollout(
        name=f"injected({column}, {chance:g})",
        call=call,
        reads=frozenset({"task:prompt", f"given:{column}"}),
        writes=names("tokens", ("task", author)) | names("tag", column),
    )


def with_behaviours(demo: str, chance: float, rng: Random) -> str:
    """A demonstration of one step a line, richer in behaviour; its steps and its last line stay as they are.

    The lines are read as a chain: a line can be worked out once those before it are. Before a line, with the chance,
      exploration   a later line, which cannot be worked out yet, is begun, found locked, and left
      exploitation  what is known (the line before it) is gathered before the line is worked out
    """
    lines = demo.splitlines()
    told: list[str] = []
    for i, line in enumerate(lines):
        locked = [_topic(later) for later in lines[i + 1 :] if _topic(later)]
        if locked and rng.random() < chance:
            ahead = rng.choice(locked)
            told.append(f"let's solve {ahead}, wait, {ahead} cannot be solved yet, let's go back")
        if i and rng.random() < chance:
            told.append(f"let's solve {_topic(line)}, since {lines[i - 1]}")
        told.append(line)
    return "\n".join(told)


def _topic(line: str) -> str:
    """What a line works out: what stands before its "=" or ":", else the whole of it."""
    return line.split("=")[0].split(":")[0].strip()


@register(
    BEHAVIOR_INJECTION,
    family="imitation",
    summary="SFT on demonstrations in which looking ahead, going back and gathering are injected.",
    when="You are about to run RL and the model neither looks ahead nor goes back: prepare it first.",
    example="burnish train behavior_injection --task add",
    trial={"task": "add"},
)
def behavior_injection(
    task: draw.Source,
    *,
    chance: Annotated[float, Option("Chance of each behaviour, before each line.", at_least=0, at_most=1)] = 0.2,
    updates: opt.Updates = 1,
) -> Method:
    """BRIDGE: SFT on demonstrations with exploratory and exploitative behaviours injected, as a start for RL.

    L = -(1 / N) sum over the N reply tokens of log pi(y'_t),  y' = the demonstration with, by chance before a step,
      "let's solve LATER, wait, LATER cannot be solved yet, let's go back"   (exploration: a locked step)
      "let's solve STEP, since KNOWN"                                        (exploitation: an unlocked step)

    Train the product further with `grpo` or another policy gradient. Departures: the paper takes the graph of
    dependences from its synthetic problems; here the lines of a demonstration are read as a chain, each line
    needing those before it. Its chance of injection could not be read; 0 is SFT.
    """
    return method(
        draw=draw.demos(task),
        rollout=injected(chance),
        learn=learn.Learn(learn.imitate(on="demo"), updates=updates),
        models=roles(),
    )
