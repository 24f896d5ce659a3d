"""A scorer: what measures or changes the rewards of a run, by name, with any method.

`--reward NAME(options)` measures: its part writes scores["reward/NAME"], which is added to the reward with its weight.
`--shape NAME(options)` changes: its part updates scores["reward"], after all rewards are added, in the order given.

The part is one of the score stage: groups in, groups out, any number of traces at once. It may score traces
(trace.scores), turns (trace.turn_scores) or tokens: a scorer with `dense` writes one number per token, NaN where it has
none, as stream DENSE + NAME. Methods with token rewards (PPO) add them token by token; for others the sum counts.

A trace that cannot be scored is marked by `mark_failed`, with the reason, and gets no score: it costs nothing but
itself. A scorer that raises, or gives NaN or infinity, has its traces marked (compose/guard.py). What fails is counted,
and dropped or scored 0 by --on-reward-failure; --max-reward-failures ends a run in which too much fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from burnish.core.parts import Part
from burnish.core.roles import Role
from burnish.core.types import Group, Trace

DENSE = "dense/"  # streams of token rewards are called DENSE + NAME
MEASURED = "reward/"  # scores of rewards are called MEASURED + NAME
PRINCIPLES = "principles"  # note of a trace: its lead over each other reply (by index) under each principle
FEEDBACK = "critique"  # note of a trace: what a judge wrote about it
RATINGS = "ratings"  # note of a trace: its rating by each aspect, item or principle
SPAN = "span"  # note of a trace: the largest difference that two scores can have
_FAILED = "failed"
_COUNTED = "failure_counted"


@dataclass(frozen=True, kw_only=True)
class Scorer:
    """A part of the score stage with the models that it asks.

    models   roles that are added to those of the method; a name that the method has already must have the same role
    dense    whether it scores tokens: its part writes stream DENSE + NAME
    version  identifies its code and options; a run records it
    """

    part: Part
    models: Mapping[str, Role] = field(default_factory=dict)
    dense: bool = False
    version: str = ""


class ScoringStops(ValueError):
    """Raised by a scorer to end the run: no other reply would fare better (its budget is used up, its key is wrong)."""


@dataclass(frozen=True)
class Named:
    """A scorer of a run with its name in the metrics and its weight (of a reward; a shape has none)."""

    name: str
    scorer: Scorer
    weight: float = 1.0


def mark_failed(trace: Trace, why: str, *, counted: bool = False) -> None:
    """The trace cannot be scored: it is counted and reported with the reason, and dropped or scored 0.

    counted: the caller has counted it already
    """
    trace.note[_FAILED] = trace.note["why"] = why
    if counted:
        trace.note[_COUNTED] = True


def is_failed(trace: Trace) -> bool:
    """Whether `mark_failed` was called for the trace."""
    return _FAILED in trace.note


def is_counted(trace: Trace) -> bool:
    """Whether the failure of the trace is in the metric reward_failures already."""
    return _COUNTED in trace.note


def named_reward(trace: Trace, name: str) -> float:
    """The reward `name` of the run for this trace; raises ValueError where the run has none of that name."""
    value = trace.scores.get(MEASURED + name)
    if value is None and name in ("reward", "correct"):
        value = trace.scores[name]
    if value is None:
        known = sorted(key.removeprefix(MEASURED) for key in trace.scores if key.startswith(MEASURED))
        raise ValueError(
            f"this run has no reward called {name!r}; --reward must name it (it has {', '.join(known) or 'none'}, and "
            "'reward' and 'correct')"
        )
    return value


def without_failed(groups: list[Group], failed: Callable[[Trace], bool]) -> list[Group]:
    """The groups without the traces that could not be scored, and without groups that have none left.

    Where the traces of a group have different parts to play (a greedy baseline, an opponent, probes), each is compared
    with certain others, and a group of which one failed is dropped whole.
    """
    for group in groups:
        kinds = {(trace.tags, tuple(turn.author for turn in trace.turns[1:2])) for trace in group.traces}
        lost = len(kinds) > 1 and any(map(failed, group.traces))
        group.traces = [] if lost else [trace for trace in group.traces if not failed(trace)]
    return [group for group in groups if group.traces]
