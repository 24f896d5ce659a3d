"""The types of what a run's store holds: facts about the run, traces, groups and events."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

EventLevel = Literal["info", "warning", "error"]
RunState = Literal["running", "stopped", "finished", "failed"]
TraceOrder = Literal["oldest", "newest", "best", "worst"]


class GitState(TypedDict):
    """The commit that a run was started from, and the files that differed from it."""

    commit: str
    branch: str
    changed: list[str]


class RunFacts(TypedDict, total=False):
    """The table info. config: the method's name and every option; limits: of the health checks."""

    config: dict[str, Any]
    environment: dict[str, object]
    git: GitState | None
    state: RunState
    paused: bool
    process: dict[str, Any]
    created: float
    updated: float
    steps: int
    lr: float
    limits: dict[str, Any]
    kernels: object


class TurnRow(TypedDict):
    """A turn of a trace: its author, how many tokens it has, and runs of weights versions."""

    author: str
    tokens: int
    versions: list[tuple[int, int]]


class TraceRow(TypedDict):
    """A trace with the columns of its group; dropped: the part that dropped it."""

    id: int
    group_id: int
    step: int
    phase: str
    task: str
    kind: str
    place: int
    prompt: str
    text: str
    reward: float | None
    correct: float | None
    length: int
    advantage: float | None
    dropped: str | None
    turns: list[TurnRow]
    scores: dict[str, float | None]
    turn_scores: dict[str, list[float | None]]
    tags: list[str]
    note: dict[str, object]
    given: object


class TraceTokens(TypedDict):
    """ids, their texts, behaviour log-probs, and streams by name; NaN is None."""

    ids: list[int]
    pieces: list[str]
    logp: list[float | None]
    streams: dict[str, list[float | None]]


class FullTrace(TraceRow):
    """A trace with its tokens."""

    tokens: TraceTokens


class GroupTrace(TypedDict):
    """The scores of a trace in its group."""

    id: int
    reward: float | None
    correct: float | None
    advantage: float | None
    dropped: str | None


class GroupRow(TypedDict):
    """A group of the traces of one task."""

    id: int
    step: int
    phase: str
    task: str
    prompt: str
    traces: NotRequired[list[GroupTrace]]


class EventRow(TypedDict):
    """level: info, warning or error."""

    id: int
    time: float
    step: int | None
    kind: str
    level: EventLevel
    text: str


class Estimate(TypedDict):
    """A mean with its interval."""

    mean: float
    low: float
    high: float


class Sampled(TypedDict):
    """Replies sampled at a temperature, beside the greedy one."""

    accuracy: Estimate
    temperature: float


class ShownReply(TypedDict):
    """A held-out prompt with the reply to it."""

    prompt: str
    reply: str
    correct: bool


class Evaluation(TypedDict):
    """An evaluation on held-out tasks, with a few of its replies."""

    name: str
    value: Estimate
    sampled: NotRequired[Sampled | None]
    greedy: NotRequired[Estimate | None]
    also: NotRequired[dict[str, float]]
    shown: NotRequired[list[ShownReply]]
