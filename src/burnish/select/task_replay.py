"""A replay store by task: past episodes of each, and the rule by which one of them enters a group again."""

from __future__ import annotations

from dataclasses import replace

from burnish.core.state import State
from burnish.core.types import Group, Trace, TraceId
from burnish.core.types_json import group_from_record, group_to_record

PAST = "replayed"  # the tag of an episode that was played in an earlier step


class TaskStore:
    """The newest `per_task` episodes of each task; of at most `tasks` tasks, the one that got none for longest first.

    Episodes are as they were played: tokens, log-probs, versions, scores and notes; streams are not kept.
    """

    def __init__(self, name: str, per_task: int, tasks: int = 10_000) -> None:
        self.name, self.per_task, self.tasks = name, per_task, tasks
        self.groups: dict[str, Group] = {}

    def add(self, group: Group, traces: list[Trace]) -> None:
        """Remember these episodes of the group's task."""
        if not traces:
            return
        known = self.groups.pop(group.task.key, None)
        kept = [*(known.traces if known else ()), *(replace(t, streams={}, scores=dict(t.scores)) for t in traces)]
        self.groups[group.task.key] = Group(group.task, kept[-self.per_task :])
        while len(self.groups) > self.tasks:
            self.groups.pop(next(iter(self.groups)))

    def of(self, key: str) -> list[Trace]:
        """The episodes of a task, oldest first."""
        return self.groups[key].traces if key in self.groups else []

    def __len__(self) -> int:
        return sum(len(group.traces) for group in self.groups.values())

    def state_dict(self) -> State:
        return {"groups": [group_to_record(group) for group in self.groups.values()]}

    def load_state_dict(self, state: State) -> None:
        groups = [group_from_record(record) for record in state["groups"]]
        self.groups = {group.task.key: group for group in groups}


def played_before(trace: Trace, index: int) -> Trace:
    """A stored episode as a trace of this step: another identity, the tag "replayed", no streams."""
    tags = trace.tags | {PAST}
    note = dict(trace.note)
    return replace(trace, index=index, scores=dict(trace.scores), streams={}, tags=tags, note=note, id=TraceId())
