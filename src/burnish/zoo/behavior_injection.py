"""Behavior Injection: Preparing Language Models for Reinforcement Learning (arXiv 2505.18917)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

BEHAVIOR_INJECTION = Paper(
    "behavior-injection", "2505.18917", "Behavior Injection: Preparing Language Models for Reinforcement Learning"
)


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
        rollout=rollout.injected(chance),
        learn=learn.Learn(learn.imitate(on="demo"), updates=updates),
        models=roles(),
    )
