"""Scorers on replies of any author: of the policy, a past one, the reference, a mixture, the data.

Scorers are written for replies of the policy: they declare to read its tokens, and may look for its turns (steps,
lengths, token rewards). Before such a part is called, every trace that one other author wrote is shown to it with that
author's turns under the policy's name; what the part writes goes to the trace itself.
"""

from __future__ import annotations

from dataclasses import replace

from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group, Trace, Turn

POLICY = "policy"
NOT_WRITERS = frozenset({"task", "env", "tool", "template", "system", "user"})  # no reply is theirs
_WRITTEN = ("scores", "turn_scores", "streams", "tags", "note")


def writer_of(part: Part) -> str | None:
    """Whose replies a part that writes the reward scores; None where it scores none: given scores are no replies'."""
    authors = {name.removeprefix("tokens:") for name in part.reads if name.startswith("tokens:")} - NOT_WRITERS
    if POLICY in authors:
        return POLICY
    return min(authors, default=None)


def for_writer(part: Part, author: str) -> Part:
    """The part, which scores the policy's replies, for those of any one author. author: the one that it declares."""
    declared = {f"{kind}:{POLICY}": f"{kind}:{author}" for kind in ("tokens", "mu")}

    def call(groups: list[Group], step: Step) -> list[Group]:
        shown, own = _shown(groups)
        if not own:
            return part.call(groups, step)
        scored = part.call(shown, step)
        for group in scored:
            group.traces = [_told(own, trace) for trace in group.traces]
        return scored

    def begin(group: Group, step: Step) -> None:
        assert part.begin is not None
        part.begin(_shown([group])[0][0], step)

    return replace(
        part,
        call=call,
        parts=(),
        begin=None if part.begin is None else begin,
        reads=frozenset(declared.get(name, name) for name in part.reads),
    )


def _shown(groups: list[Group]) -> tuple[list[Group], dict[int, tuple[Trace, Trace]]]:
    """The groups as a scorer sees them, and by the id of a trace in them, it and the one that it stands for."""
    turns: dict[int, tuple[Turn, Turn]] = {}
    own: dict[int, tuple[Trace, Trace]] = {}

    def trace_of(trace: Trace) -> Trace:
        writers = set(trace.authors()) - NOT_WRITERS
        if len(writers) != 1 or writers == {POLICY}:
            return trace
        shown = replace(trace, turns=_renamed(trace.turns, turns))
        own[id(shown)] = (shown, trace)
        return shown

    shown = [replace(group, traces=[trace_of(trace) for trace in group.traces]) for group in groups]
    return shown, own


def _renamed(turns: tuple[Turn, ...], known: dict[int, tuple[Turn, Turn]]) -> tuple[Turn, ...]:
    """The turns with their writer under the policy's name; a turn that traces share stays one turn."""
    renamed: list[Turn] = []
    for turn in turns:
        if id(turn) not in known:
            author = turn.author if turn.author in NOT_WRITERS else POLICY
            known[id(turn)] = turn, replace(turn, author=author, parent=renamed[-1] if renamed else turn.parent)
        renamed.append(known[id(turn)][1])
    return tuple(renamed)


def _told(own: dict[int, tuple[Trace, Trace]], shown: Trace) -> Trace:
    """The trace that a shown one stands for, with what was written on it; itself where it stands for none."""
    if id(shown) not in own:
        return shown
    _, trace = own[id(shown)]
    for name in _WRITTEN:
        setattr(trace, name, getattr(shown, name))
    return trace
