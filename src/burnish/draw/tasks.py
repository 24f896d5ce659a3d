"""Draw tasks from a source: every epoch in a new shuffled order, each task once, depending only on the seed.

The order of an epoch is a permutation of which single elements are computed, so a draw has no state and costs the same
for ten rows and for a billion.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from burnish.core import randomness
from burnish.core.parts import Draw, names, supplies
from burnish.core.step import Step
from burnish.core.types import Clock, Task
from burnish.tasks.data.columns import COLUMNS
from burnish.tasks.data.scan import WEIGHTS
from burnish.tasks.environment import CannotStart
from burnish.tasks.replies import cut_to_replies
from burnish.tasks.resolve import datasets_of, environments_of
from burnish.tasks.source import Source

RESETS = 64  # environments that are reset at the same time


@supplies("task:prompt", "given:*")
def prompts(source: Source, *needs: str, tag: str = "prompts") -> Draw:
    """The next `prompts` tasks of the source. needs: keys that every Task.given must have ("demo", "env")."""
    _require(source, needs)
    if not needs:
        _require_prompt(source)
    return Draw(
        name=tag,
        call=lambda step: tasks_at(source, "train", step, tag),
        heldout=lambda step: tasks_at(source, "heldout", step, tag),
        ahead=bool(datasets_of(source)),
        writes=frozenset({"task:prompt"}) | names("given", source.gives),
    )


def questions(source: Source) -> Draw:
    """The tasks of a source that a method makes of the run's own (judge tasks); it also judges held-out replies."""
    return replace(prompts(source, tag="questions"), source=source)


def demos(source: Source, *, weighs: bool = False) -> Draw:
    """Tasks with a demonstration. weighs: whether the method honours messages that count in part (weight: 0.5)."""
    if WEIGHTS in source.gives and not weighs:
        raise ValueError(
            f"task {source.name!r} has messages with weights other than 0 and 1, which this method does not weigh; "
            "use sft, or weights of 0 and 1"
        )
    return prompts(source, "demo", tag="demos")


@supplies("given:episode", "given:oracle")
def episodes(source: Source, column: str = "episode") -> Draw:
    """Tasks with a recorded episode: messages, the replies among them with their rewards (tasks/data/episodes.py).

    column  "episode", or "oracle": the episode of a task's best algorithm
    """
    if column not in source.gives:
        has = ", ".join(sorted(source.gives)) or "nothing"
        fix = "use a built-in game (guess, bandit)"
        if column == "episode":
            fix = "give the assistant's messages of every row a 'reward', or the rows a column 'rewards'; or " + fix
        raise ValueError(f"task {source.name!r} gives no {column!r}, which this method needs (it gives {has}); {fix}")
    return prompts(source, column, tag="episodes")


@supplies("given:chosen", "given:rejected")
def pairs(source: Source) -> Draw:
    """Tasks with a preferred and a dispreferred reply. A task's own "demo" and "mistake" are such a pair."""
    if not {"demo", "mistake"} <= source.gives or {"chosen", "rejected"} & source.gives:
        return prompts(source, "chosen", "rejected", tag="pairs")

    def of(split: str, step: Step) -> list[Task]:
        drawn = tasks_at(source, split, step, "pairs")
        return [
            Task("pair", t.prompt, {**t.given, "chosen": t.given["demo"], "rejected": t.given["mistake"]}, t.key)
            for t in drawn
        ]

    return Draw(
        name="pairs",
        call=lambda step: of("train", step),
        heldout=lambda step: of("heldout", step),
        ahead=bool(datasets_of(source)),
        writes=frozenset({"task:prompt"}) | names("given", source.gives | {"chosen", "rejected"}),
    )


def tasks_at(source: Source, split: str, step: Step, purpose: str) -> list[Task]:
    """The tasks of this pass: positions [k n, (k+1) n) of the endless shuffled sequence, k the step's number."""
    n, clock = step.settings.prompts, step.clock
    start = clock.step * n
    indices = [_index(source, split, start + i, clock, purpose) for i in range(n)]
    return tasks_of(source, split, indices, step, played=purpose == "prompts")


def tasks_of(source: Source, split: str, indices: Sequence[int], step: Step, played: bool = True) -> list[Task]:
    """The tasks with these indices. The environments that give their prompts are reset at the same time.

    played: a task whose environment cannot be reset is one whose episodes fail; if not, that is an error
    """

    def one(index: int) -> Task:
        try:
            return source.task(split, index)
        except CannotStart as error:
            if not played:
                raise
            return error.task

    environments = environments_of(source)
    for environment in environments:
        environment.seconds = step.settings.env_timeout
    if not environments or len(indices) < 2:
        return [one(index) for index in indices]
    with ThreadPoolExecutor(min(len(indices), RESETS), "resets") as pool:
        return list(pool.map(one, indices))


def _index(source: Source, split: str, position: int, clock: Clock, purpose: str) -> int:
    """The index of the task at a position of the endless sequence."""
    size = source.size(split)
    if size is None:
        return position + (clock.seed << 32)
    if not size:
        raise ValueError(f"task {source.name!r} has no {split} rows; give it more rows")
    epoch, place = divmod(position, size)
    return randomness.placed(place, size, clock.seed, purpose, epoch)


def _require(source: Source, needs: tuple[str, ...]) -> None:
    if "demo" in needs and "demo" not in source.gives:
        cut_to_replies(source)
    for need in needs:
        if need not in source.gives:
            has = ", ".join(sorted(source.gives)) or "nothing"
            counted = ""
            if (mixed := datasets_of(source)) and any(counts := [one.how_many(need)[0] for one in mixed]):
                rows = sum(one.how_many(need)[1] for one in mixed)
                first, _ = next(filter(None, (one.first(lambda given: need not in given) for one in mixed)))  # noqa: B023
                counted = f"; {sum(counts):,} of its {rows:,} rows have one, but not {first}: remove the others"
            columns = " or ".join(COLUMNS.get(need, (need,)))
            roles = sorted(role for one in datasets_of(source) for role in one.roles()) if need == "demo" else []
            if roles:
                counted += (
                    f"; its conversations have the roles {', '.join(roles)}, and a reply has the role 'assistant'"
                )
            raise ValueError(
                f"task {source.name!r} gives no {need!r}, which this method needs (it gives {has}){counted}; "
                f"choose another task, a dataset with a column {columns}, or name one with --columns {need}=NAME"
            )


def _require_prompt(source: Source) -> None:
    """Raise ValueError for plain texts: they are read, not asked."""
    for dataset in datasets_of(source):
        if dataset.task("train", 0).prompt == "":
            raise ValueError(
                f"the rows of {dataset.name!r} are texts without a prompt, to which no reply can be sampled; "
                "use sft, or name the column of the prompts with --columns prompt=text"
            )
