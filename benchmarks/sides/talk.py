"""The environment of the episodes: it answers every reply, so many times, and pays for what the policy wrote.

A model with random weights writes no calls of tools, so every reply counts as one: its text is what the tool is called
with. The work of a step is then the same on every side and in every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workload import text

from burnish.core.randomness import rng

TOOL = "say"


def answer_to(said: str, work: Mapping[str, Any]) -> str:
    """What the tool answers: words that depend on what was said."""
    dice = rng("benchmark", "answer", said)
    return text([dice.randrange(8, work["vocabulary"]) for _ in range(work["answer_tokens"])])


def reward_of(said: str) -> float:
    """One for a reply whose letters have an even sum."""
    return float(sum(said.encode()) % 2 == 0)
