"""Replies written a chunk a step: what is not finished goes on in the next step, by the weights of then.

A step writes at most `settings.chunk` tokens of every reply that is open. Groups all of whose replies have ended go on
to score; the others wait, and are written on before and beside the groups of the next step. The last step of a run
writes all that is open to its end. So every reply that was asked for is learned from once, however long it is, and
never later than ceil(max_new_tokens / chunk) - 1 steps after the step that drew its task. Episodes with environments
wait between their turns instead (played_on.py).

(MiniCPM4's chunk-wise rollout, arXiv 2506.07900; partial rollouts of Kimi k1.5, arXiv 2501.12599. docs/async.md says
what is ours.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from burnish.compose.played_on import waiting_in
from burnish.core.method import Method, Phase
from burnish.core.parts import Asks, Rollout
from burnish.core.state import State
from burnish.core.step import UNFINISHED, Step
from burnish.core.types import Group, Sampling, Task
from burnish.core.types_json import group_from_record, group_to_record
from burnish.rollout.starts import Open, Reply, Start, asked_for, beginning, write_on

_HOW = ("key", "who", "author", "tag")


class Unfinished:
    """The groups that are being written, oldest first. Stateful: a checkpoint holds them as far as they are."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.groups: list[Open] = []

    def replies(self) -> int:
        """How many replies are still being written."""
        return sum(not reply.stopped for group in self.groups for reply in group.replies)

    def state_dict(self) -> State:
        return {"groups": [_open_to_record(group) for group in self.groups]}

    def load_state_dict(self, state: State) -> None:
        self.groups = [_open_from_record(record) for record in state["groups"]]


def in_chunks(rollout: Rollout, asks: Asks, unfinished: Unfinished) -> Rollout:
    """The rollout, at most `settings.chunk` tokens of a reply a step. Where no chunk is set (evaluations), the rollout
    itself.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        chunk, clock = step.settings.chunk, step.clock
        if chunk is None:
            return rollout.call(tasks, step)
        groups = unfinished.groups + asked_for(asks, tasks, step)
        ended = beginning(groups, step)
        writing = [reply for group in groups for reply in group.replies if not reply.stopped]
        for who_and_tag in dict.fromkeys((reply.start.who, reply.start.tag) for reply in writing):
            some = [reply for reply in writing if (reply.start.who, reply.start.tag) == who_and_tag]
            write_on(some, step, most=None if clock.step == clock.of - 1 else chunk, ended=ended)
        unfinished.groups = [group for group in groups if not group.finished()]
        step.notes.count(UNFINISHED, unfinished.replies())
        return [group.group() for group in groups if group.finished()]

    return replace(rollout, name=f"{rollout.name} in chunks", call=call, state=(*rollout.state, unfinished))


def _open_to_record(opened: Open) -> dict[str, object]:
    """Plain values. A reply waits only after its first chunk, so that each has a last turn."""
    starts = [reply.start for reply in opened.replies]
    how = [{name: getattr(start, name) for name in _HOW} | start.settings.named() for start in starts]
    return {"group": group_to_record(opened.group()), "how": how}


def _open_from_record(record: dict[str, Any]) -> Open:
    group = group_from_record(record["group"])
    replies = []
    for trace, how in zip(group.traces, record["how"], strict=True):
        *before, said = trace.turns
        settings = Sampling(**{name: value for name, value in how.items() if name not in _HOW})
        named = {name: how[name] for name in _HOW}
        start = Start(group.task, tuple(before), trace.index, **named, settings=settings)
        replies.append(Reply(start, said, trace.note.get("stopped", "")))
    return Open(group.task, replies)


def chunked(method: Method) -> Method:
    """The method with every rollout that samples writing in chunks. One whose replies cannot wait is refused."""
    phases = tuple(_chunked(method, phase) for phase in method.phases)
    if not any(memories_of(phase) or waiting_in(phase) for phase in phases):
        raise ValueError(f"{method.name} samples no replies that could be written in chunks; leave out --chunk")
    return replace(method, phases=phases)


def memories_of(phase: Phase) -> list[Unfinished]:
    """What waits in a phase's rollout."""
    return [item for item in phase.rollout.state if isinstance(item, Unfinished)]


def _chunked(method: Method, phase: Phase) -> Phase:
    rollout = phase.rollout
    samples = any(name.endswith(".generate") for name in rollout.reads)
    if not samples or memories_of(phase) or waiting_in(phase):
        return phase
    if rollout.asks is None:
        raise ValueError(
            f"{method.name} cannot write replies in chunks (--chunk): its rollout {rollout.name!r} does more than ask "
            "for replies "
            "(it goes on from how they end, mixes models, or chooses); leave out --chunk"
        )
    return replace(phase, rollout=in_chunks(rollout, rollout.asks, Unfinished(f"unfinished-{phase.name}")))
