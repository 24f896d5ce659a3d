"""Episodes cut into rows: one trace for each turn of the policy, which is the episode up to that turn."""

from __future__ import annotations

from dataclasses import replace

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace, TraceId

ROW = "turn"  # the tag of such a trace


@supplies("tag:turn")
def by_turn(*, author: str = "policy") -> Part:
    """One trace (tag "turn") for each turn of the author, that turn last: an action, after the state that it met.

    note["episode"] is the episode's place in its group and note["k"] the number of the turn in it. A row has the
    episode's scores, and the scores of its own turns. Rows share their turns, so that a batch reads each token once.
    The last row is the whole episode and keeps its identity.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        return [Group(g.task, [row for i, t in enumerate(g.traces) for row in turn_rows(t, i, author)]) for g in groups]

    return Part(
        name="by_turn",
        call=call,
        reads=frozenset({f"tokens:{author}", "score:reward", "turn_score:reward"}),
        writes=frozenset({f"tag:{ROW}"}),
        updates=frozenset({f"tokens:{author}"}),
    )


def turn_rows(trace: Trace, episode: int, author: str) -> list[Trace]:
    """The rows of one episode, in the order of its turns."""
    ends = [i + 1 for i, turn in enumerate(trace.turns) if turn.author == author and len(turn)]
    return [
        replace(
            trace,
            turns=trace.turns[:end],
            scores=dict(trace.scores),
            turn_scores={name: values[:end] for name, values in trace.turn_scores.items()},
            streams={},
            tags=trace.tags | {ROW},
            note={**trace.note, "episode": episode, "k": k},
            id=trace.id if end == ends[-1] else TraceId(),
        )
        for k, end in enumerate(ends)
    ]


def episodes_of(group: Group) -> list[list[Trace]]:
    """The rows of each episode of a group, in the order of their turns."""
    episodes: dict[int, list[Trace]] = {}
    for row in group.traces:
        episodes.setdefault(row.note["episode"], []).append(row)
    return [sorted(rows, key=lambda row: row.note["k"]) for rows in episodes.values()]


def own_span(row: Trace) -> tuple[int, int]:
    """The tokens of a row's own turn, its last: a half-open range."""
    return len(row) - len(row.turns[-1]), len(row)
