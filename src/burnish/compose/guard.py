"""A scorer that fails costs the traces on which it fails, and nothing else.

If its part raises, the scores are as before the call and it is called again group by group, so that only the groups on
which it raises are marked. If it raises on every group, the error ends the run: it is a mistake, not bad luck. So does
ScoringStops (a budget that is used up), at once. A trace to which it gives NaN or infinity is marked alone. Reasons
name the scorer.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from burnish.core.parts import Part
from burnish.core.scorer import ScoringStops, is_failed, mark_failed
from burnish.core.step import Step
from burnish.core.types import Group, Trace, TraceId

LONGEST_REASON = 300  # characters


def guarded(part: Part, name: str, writes: str) -> Part:
    """The part of the scorer `name`, with its failures marked. writes: "score:NAME" or "stream:NAME"."""
    kind, _, written = writes.partition(":")

    def call(groups: list[Group], step: Step) -> list[Group]:
        before = {trace.id: dict(trace.scores) for group in groups for trace in group.traces}
        try:
            groups = part.call(groups, step)
        except ScoringStops:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a scorer raises is its own failure
            groups = _one_by_one(part, name, groups, step, before, error)
        for trace in (trace for group in groups for trace in group.traces):
            if not is_failed(trace) and (bad := _not_finite(trace, kind, written)):
                mark_failed(trace, f"{name} gave {bad}")
            if is_failed(trace):
                _undo(trace, before[trace.id])
                if kind == "stream":
                    trace.streams[written] = torch.full((len(trace),), math.nan)
        return groups

    return replace(part, name=part.name if part.name != "chain" else name, call=call, parts=())


def _one_by_one(
    part: Part, name: str, groups: list[Group], step: Step, before: dict[TraceId, dict[str, float]], error: Exception
) -> list[Group]:
    """The groups after the part, called for each alone; raises ValueError if it raises for all."""
    scored: list[Group] = []
    failed = 0
    for group in groups:
        for trace in group.traces:
            _undo(trace, before[trace.id])
        try:
            scored += part.call([group], step)
        except ScoringStops:
            raise
        except Exception as own:  # noqa: BLE001
            failed, error = failed + 1, own
            for trace in group.traces:
                mark_failed(trace, f"{name} raised {reason(own)}")
            scored.append(group)
    if failed == len(groups):
        raise ValueError(f"{name} raised on every group of the step: {reason(error)}") from error
    return scored


def reason(error: Exception) -> str:
    """The class of an error and the first line of what it says."""
    said = (str(error).strip().splitlines() or [""])[0][:LONGEST_REASON]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _not_finite(trace: Trace, kind: str, written: str) -> str:
    """The NaN or infinity that was written, as text; empty where there is none. NaN in a stream means no score."""
    if kind == "stream":
        return "infinity" if bool(torch.isinf(trace.streams[written]).any()) else ""
    value = trace.scores.get(written, 0.0)
    return "" if math.isfinite(value) else str(value)


def _undo(trace: Trace, scores: dict[str, float]) -> None:
    trace.scores.clear()
    trace.scores.update(scores)
