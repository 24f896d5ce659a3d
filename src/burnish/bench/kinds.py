"""What a benchmark is: how its rows are asked, and how what the model says becomes numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from burnish.util.json_types import Json

Row = Mapping[str, Json]
Scores = dict[str, list[float]]  # metric -> a number for each row


@dataclass(frozen=True)
class Choices:
    """The likeliest of given continuations.

    of      the continuations of a row, with the space before them
    right   which of them are right
    """

    of: Callable[[Row], Sequence[str]]
    right: Callable[[Row], Sequence[int]]


@dataclass(frozen=True)
class Replies:
    """Greedy replies.

    judge    scores of the replies to rows
    stop     texts at which a reply is cut off
    tokens   of a reply, at most
    """

    judge: Callable[[Sequence[Row], Sequence[str]], Scores]
    stop: tuple[str, ...] = ()
    tokens: int = 512


@dataclass(frozen=True)
class Bench:
    """A benchmark.

    paper    its arXiv number
    hub      its dataset on the hub, as owner/name:configuration
    shots    examples before a question, as results are usually reported
    metric   the one that is usually reported
    ask      the text of a question, up to where the reply begins
    answer   the reply of an example, with the space before it
    before   what stands before the first question
    group    the name of the part that a row belongs to: a subject, a task
    """

    name: str
    summary: str
    paper: str
    hub: str
    metric: str
    ask: Callable[[Row], str]
    measure: Choices | Replies
    shots: int = 0
    answer: Callable[[Row], str] = lambda row: ""
    before: Callable[[Row], str] = lambda row: ""
    group: Callable[[Row], str] = lambda row: ""
    examples: Sequence[Row] = ()  # those of the benchmark itself, where it names them


def text(row: Row, *names: str) -> str:
    """The first of these columns that a row has; ValueError where it has none."""
    for name in names:
        value = row.get(name)
        if isinstance(value, str | int | float):
            return str(value)
    raise ValueError(f"a row has no column {' or '.join(names)}; it has {', '.join(row)}")
