"""What counts as one action: a token, a step of reasoning, or the whole reply."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.rollout.branch import Cuts, lines

LEVELS: dict[str, Cuts] = {
    "token": lambda turn, chat: list(range(len(turn))),
    "step": lines,
    "response": lambda turn, chat: [0],
}


@supplies("stream:action")
def actions(level: str, *, author: str = "policy", reader: str = "policy") -> Part:
    """The number of the action that each of the author's tokens belongs to, as stream "action".

    level  token: every token is one; step: every line of a turn is one; response: the whole turn is one
    """
    if level not in LEVELS:
        raise ValueError(f"level is {level!r}; choose one of {', '.join(LEVELS)}")

    starts_of = LEVELS[level]

    def write(trace: Trace, group: Group, step: Step) -> None:
        found = torch.zeros(len(trace), dtype=torch.long)
        count = 0
        for turn, start, end in trace.spans():
            if turn.author == author:
                starts = starts_of(turn, step.models[reader].chat)
                begins = torch.zeros(end - start, dtype=torch.long)
                begins[starts] = 1
                found[start:end] = count + begins.cumsum(0)
                count += len(starts)
        trace.streams["action"] = found
        step.notes.add("actions", count)

    return per_trace(
        write, name=f"actions({level})", reads=frozenset({f"tokens:{author}"}), writes=frozenset({"stream:action"})
    )
