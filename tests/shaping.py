"""What the tests of shapes share: groups with given rewards and lengths, and a shape applied to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from conftest import SMALL

from burnish.core.call_syntax import read_call
from burnish.core.scorer import Scorer
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.models.build import Models
from burnish.rewards.table import build_scorer, load_scorers
from burnish.tasks.table import source

TASK = source("sort")


def trace(reward: float = 0.0, length: int = 4, right: bool | None = None, tokens: list[int] | None = None) -> Trace:
    """A reply of so many tokens; right where the reward is above 0.5, unless it is said."""
    ids = torch.tensor(tokens if tokens is not None else list(range(10, 10 + length)), dtype=torch.long)
    said = Turn(ids, "policy", torch.full((len(ids),), -0.5))
    correct = float(reward > 0.5 if right is None else right)
    return Trace((Turn(torch.tensor([1, 2]), "task"), said), scores={"reward": reward, "correct": correct})


def said(chat: Any, text: str, reward: float = 0.0, right: bool | None = None) -> Trace:
    """A reply with this text."""
    return trace(reward, right=right, tokens=chat.reply(text).tolist())


def group(*traces: Trace, key: str = "a", given: Mapping[str, Any] | None = None) -> Group:
    for i, one in enumerate(traces):
        one.index = i
    return Group(Task("question", "?", given or {}, key), list(traces))


def a_step(models: Models | None = None, step: int = 0, of: int = 10, **settings: Any) -> Step:
    from dataclasses import replace

    given: Settings = replace(SMALL, **settings)
    return Step(Clock(step, of), models, given)  # type: ignore[arg-type]


def scorer(text: str) -> Scorer:
    call = read_call(text)
    assert call is not None
    return build_scorer(call, TASK, load_scorers()[call.name].kind)


def shaped(text: str, *groups: Group, models: Models | None = None, **settings: Any) -> list[list[float]]:
    """The rewards after the shape."""
    scorer(text).part.call(list(groups), a_step(models, **settings))
    return [[one.scores["reward"] for one in own.traces] for own in groups]
