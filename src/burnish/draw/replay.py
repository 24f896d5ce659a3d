"""Experience replay: draw transitions of stored episodes, or whole stored groups."""

from __future__ import annotations

from burnish.core import randomness
from burnish.core.parts import Draw, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.select.remember import Store


@supplies("given:trace", "given:turn")
def transitions(store: Store, n: int, author: str = "policy") -> Draw:
    """n transitions, drawn with replacement, each stored one as likely as any other: a trace and one of its turns by
    `author`.
    """

    def call(step: Step) -> list[Task]:
        clock = step.clock
        rng = randomness.rng(clock.seed, "transitions", store.name, clock.step, clock.tick, store.written)
        stored = [
            (group.task, trace, i)
            for group in store.groups
            for trace in group.traces
            for i, turn in enumerate(trace.turns)
            if turn.author == author
        ]
        drawn = [rng.choice(stored) for _ in range(n if stored else 0)]
        return [
            Task("past", task.prompt, {**task.given, "trace": trace, "turn": turn}, task.key)
            for task, trace, turn in drawn
        ]

    return Draw(
        name=f"transitions({store.name})",
        call=call,
        reads=frozenset({f"store:{store.name}"}),
        writes=frozenset({"task:prompt"}) | names("given", ("trace", "turn")),
        state=(store,),
    )


def groups_by_task(groups: list[Group]) -> dict[str, list[Group]]:
    """The groups of each task, newest first."""
    by_prompt: dict[str, list[Group]] = {}
    for group in reversed(groups):
        by_prompt.setdefault(group.task.key, []).append(group)
    return by_prompt
