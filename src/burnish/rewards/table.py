"""The table of scorers, and how one is built from words: `alp(beta=1e-4)`."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from burnish.core.call_syntax import Call, bound
from burnish.core.scorer import Scorer
from burnish.papers import Paper
from burnish.tasks.source import Source

Build = Callable[..., Scorer]
_B = TypeVar("_B", bound=Build)


@dataclass(frozen=True)
class ScorerEntry:
    """One row of the table. kind: "reward", "shape" or "preference"; trial: arguments for tests."""

    name: str
    kind: str
    build: Build
    papers: tuple[Paper, ...] = ()
    summary: str = ""
    when: str = ""
    example: str = ""
    trial: Mapping[str, Any] = field(default_factory=dict)


SCORERS: dict[str, ScorerEntry] = {}


def register_reward(
    *papers: Paper, summary: str, when: str = "", example: str = "", trial: Mapping[str, Any] | None = None
) -> Callable[[_B], _B]:
    """Put a function(task, ...) -> Scorer into the table, to be used as --reward NAME."""
    return _registered("reward", papers, summary, when, example, trial)


def register_shape(
    *papers: Paper, summary: str, when: str = "", example: str = "", trial: Mapping[str, Any] | None = None
) -> Callable[[_B], _B]:
    """Put a function(task, ...) -> Scorer into the table, to be used as --shape NAME."""
    return _registered("shape", papers, summary, when, example, trial)


def register_preference(
    *papers: Paper, summary: str, when: str = "", example: str = "", trial: Mapping[str, Any] | None = None
) -> Callable[[_B], _B]:
    """Put a function(task, ...) -> Scorer into the table, to be used as --preference NAME."""
    return _registered("preference", papers, summary, when, example, trial)


def _registered(
    kind: str,
    papers: tuple[Paper, ...],
    summary: str,
    when: str,
    example: str,
    trial: Mapping[str, Any] | None,
) -> Callable[[_B], _B]:
    def mark(function: _B) -> _B:
        name = function.__name__
        command = example or f"burnish train grpo --{kind} {name}"
        SCORERS[name] = ScorerEntry(name, kind, function, papers, summary, when, command, trial or {})
        return function

    return mark


def load_scorers() -> dict[str, ScorerEntry]:
    """Import every family and return the whole table."""
    import burnish.rewards.families  # noqa: F401

    return SCORERS


def build_scorer(call: Call, task: Source, kind: str) -> Scorer:
    """The scorer that a call such as alp(beta=1e-4) names; raises ValueError for what is none of this kind."""
    entry = load_scorers()[call.name]
    if entry.kind != kind:
        raise ValueError(f"{call.name} is used as --{entry.kind} {call.name}, not as --{kind}")
    arguments = bound(call, entry.build, skip=1)
    several = [p.name for p in inspect.signature(entry.build).parameters.values() if p.kind is p.VAR_POSITIONAL]
    listed = arguments.pop(several[0], ()) if several else ()  # a function with *paths takes them by position
    return replace(entry.build(task, *listed, **arguments), version=version_of(entry, call))


def version_of(entry: ScorerEntry, call: Call) -> str:
    """Ten hexadecimal digits of a hash of its source file and its options."""
    source = Path(inspect.getsourcefile(inspect.unwrap(entry.build)) or "").read_bytes()
    return hashlib.sha256(source + call.text().encode()).hexdigest()[:10]
