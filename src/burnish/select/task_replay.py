"""A replay store by task: past episodes of each, and the rule by which one of them enters a group again."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from burnish.core import randomness
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
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

    def state_dict(self) -> dict[str, Any]:
        return {"groups": [group_to_record(group) for group in self.groups.values()]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        groups = [group_from_record(record) for record in state["groups"]]
        self.groups = {group.task.key: group for group in groups}


def played_before(trace: Trace, index: int) -> Trace:
    """A stored episode as a trace of this step: another identity, the tag "replayed", no streams."""
    tags = trace.tags | {PAST}
    note = dict(trace.note)
    return replace(trace, index=index, scores=dict(trace.scores), streams={}, tags=tags, note=note, id=TraceId())


@supplies("tag:refilled")
def replay_where_failed(
    store: TaskStore, *, above: float = 0.1, flat: float = 0.05, low: float = 0.2, score: str = "reward"
) -> Part:
    """ARPO's replay (arXiv 2505.16282): a group without success gets one of the task's past successes.

    In a group whose scores have a deviation below `flat` and a mean below `low`, the first trace is replaced by a
    stored one, drawn at random (tag "replayed"). Then the traces that score more than `above` are stored; one that
    came from the store is not stored again. All traces get the tag "refilled".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        replaced = sum([_refill(group, step) for group in groups])
        for group in groups:
            new = [trace for trace in group.traces if PAST not in trace.tags and trace.scores[score] > above]
            store.add(group, new)
            for trace in group.traces:
                trace.tags = trace.tags | {"refilled"}
        step.notes.add("replayed", replaced, max(1, len(groups)))
        step.notes.add("replay_store", len(store))
        return groups

    def _refill(group: Group, step: Step) -> bool:
        scores = [trace.scores[score] for trace in group.traces]
        known = store.of(group.task.key)
        if not known or not scores or statistics.fmean(scores) >= low or _deviation(scores) >= flat:
            return False
        clock = step.clock
        dice = randomness.rng(clock.seed, "replay", store.name, clock.step, clock.tick, group.task.key)
        group.traces[0] = played_before(dice.choice(known), group.traces[0].index)
        return True

    return Part(
        name=f"replay_where_failed({store.name})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"tag:refilled"}),
        updates=frozenset({"tokens:policy"}),
        state=(store,),
    )


@supplies("tag:replayed")
def beside_successes(store: TaskStore, share: float, *, above: float = 0.5, score: str = "reward") -> Part:
    """The groups, and past successes as groups of their own (tag "replayed"): share x the run's prompts of them.

    Tasks of the store are drawn without replacement, and of each one of its episodes. Then the fresh traces that score
    more than `above` are stored.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        clock = step.clock
        dice = randomness.rng(clock.seed, "successes", store.name, clock.step, clock.tick)
        keys = dice.sample(list(store.groups), min(round(share * step.settings.prompts), len(store.groups)))
        past = [Group(store.groups[key].task, [played_before(dice.choice(store.of(key)), 0)]) for key in keys]
        for group in groups:
            store.add(group, [trace for trace in group.traces if trace.scores[score] > above])
        step.notes.add("replay_store", len(store))
        return [*groups, *past]

    return Part(
        name=f"beside_successes({store.name})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({f"tag:{PAST}"}),
        updates=frozenset({"tokens:policy"}),
        state=(store,),
    )


def _deviation(scores: list[float]) -> float:
    """Their sample deviation; 0 of one."""
    return statistics.stdev(scores) if len(scores) > 1 else 0.0
