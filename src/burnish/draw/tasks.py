"""Tasks from a source, each once per epoch in a shuffled order that depends on the seed alone: nothing to remember."""

from __future__ import annotations

from burnish import randomness
from burnish.nouns import Clock, Task
from burnish.parts import Draw, names, supplies
from burnish.step import Step
from burnish.tasks.dataset import COLUMNS
from burnish.tasks.source import Source


@supplies("task:prompt", "given:*")
def prompts(source: Source, *needs: str, tag: str = "prompts") -> Draw:
    """The run's `prompts` next tasks of the source. `needs` names what every task must give ("demo", "env")."""
    _require(source, needs)
    return Draw(
        name=tag,
        call=lambda step: tasks_at(source, "train", step, tag),
        heldout=lambda step: tasks_at(source, "heldout", step, tag),
        writes=frozenset({"task:prompt"}) | names("given", source.gives),
    )


def demos(source: Source) -> Draw:
    """Tasks with a demonstration."""
    return prompts(source, "demo", tag="demos")


@supplies("given:chosen", "given:rejected")
def pairs(source: Source) -> Draw:
    """Tasks with a preferred and a dispreferred reply. A task's own "demo" and "mistake" are such a pair."""
    if not {"demo", "mistake"} <= source.gives or {"chosen", "rejected"} & source.gives:
        return prompts(source, "chosen", "rejected", tag="pairs")

    def of(split: str, step: Step) -> list[Task]:
        found = tasks_at(source, split, step, "pairs")
        return [
            Task("pair", t.prompt, {**t.given, "chosen": t.given["demo"], "rejected": t.given["mistake"]}, t.key)
            for t in found
        ]

    return Draw(
        name="pairs",
        call=lambda step: of("train", step),
        heldout=lambda step: of("heldout", step),
        writes=frozenset({"task:prompt"}) | names("given", source.gives | {"chosen", "rejected"}),
    )


def tasks_at(source: Source, split: str, step: Step, purpose: str) -> list[Task]:
    """The tasks of this walk: positions [k n, (k+1) n) of the endless shuffled sequence, k the walk's number."""
    n, clock = step.settings.prompts, step.clock
    start = clock.step * n
    return [_task(source, split, start + i, clock, purpose) for i in range(n)]


def _task(source: Source, split: str, position: int, clock: Clock, purpose: str) -> Task:
    size = source.size(split)
    if size is None:
        return source.task(split, position + (clock.seed << 32))
    epoch, place = divmod(position, size)
    return source.task(split, randomness.shuffled(size, clock.seed, purpose, epoch)[place])


def _require(source: Source, needs: tuple[str, ...]) -> None:
    for need in needs:
        if need not in source.gives:
            has = ", ".join(sorted(source.gives)) or "nothing"
            raise ValueError(
                f"task {source.name!r} gives no {need!r}, which this method needs (it gives {has}); "
                f"choose another task, or a dataset with a column {' or '.join(COLUMNS.get(need, (need,)))}"
            )
