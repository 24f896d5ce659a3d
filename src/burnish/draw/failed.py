"""A curriculum of failed tasks, of which a critic expects neither success nor failure (WebRL, arXiv 2411.02337)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from burnish.core import randomness
from burnish.core.parts import Draw, names
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.draw.tasks import prompts, tasks_of
from burnish.score.heads import end_outputs
from burnish.tasks.source import Source

PLACE = "place"  # in Task.given: the index of the task in its source


class Failed:
    """The indices of tasks that failed, newest last, and the place in the source up to which tasks were drawn."""

    def __init__(self, name: str, capacity: int) -> None:
        self.name, self.capacity = name, capacity
        self.indices: list[int] = []
        self.place = 0

    def saw(self, index: int, failed: bool) -> None:
        """The task at an index was played: every episode of it failed, or not."""
        self.indices = [other for other in self.indices if other != index]
        if failed:
            self.indices = [*self.indices, index][-self.capacity :]

    def state_dict(self) -> dict[str, Any]:
        return {"indices": self.indices, "place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.indices, self.place = [int(index) for index in state["indices"]], int(state["place"])


def failed_again(
    source: Source,
    *needs: str,
    low: float,
    high: float,
    share: float,
    warmup: int,
    scan: int = 4,
    capacity: int = 1000,
    above: float = 0.5,
    critic: str = "critic",
) -> Draw:
    """The next tasks: failed ones again and new ones of the source, those whose value at the start is in [low, high].

    V(s_0) = min over the critic's heads of sigmoid of its output after the prompt. Of a batch, at most `share` are
    failed tasks, newest first. Candidates are looked at until the batch is full, at most scan x the batch new ones;
    what is missing then is filled with the new ones nearest to the band. In the first `warmup` steps, when the critic
    knows nothing, every new task is taken.
    """
    plain = prompts(source, *needs)
    memory = Failed("failed", capacity)

    def call(step: Step) -> list[Task]:
        n = step.settings.prompts
        if step.clock.step < warmup:
            return _next(n, step)
        again = _at(memory.indices[::-1][: round(share * n) * scan], step)
        chosen = [task for task, off in zip(again, _off(again, step), strict=True) if not off][: round(share * n)]
        step.notes.add("failed_tasks", len(chosen), n)
        rest: list[tuple[float, Task]] = []
        for _ in range(scan):
            if len(chosen) >= n:
                break
            new = _next(n - len(chosen), step)
            offs = _off(new, step)
            chosen += [task for task, off in zip(new, offs, strict=True) if not off]
            rest += [(off, task) for task, off in zip(new, offs, strict=True) if off]
        step.notes.add("in_band", len(chosen), n)
        nearest = sorted(range(len(rest)), key=lambda i: (rest[i][0], i))
        return [*chosen, *(rest[i][1] for i in nearest[: n - len(chosen)])]

    def _off(tasks: list[Task], step: Step) -> list[float]:
        """How far outside the band the value at the start of each task is; 0 inside."""
        chat = step.models[critic].chat
        starts = [Trace((Turn(chat.prompt(task), "task"),)) for task in tasks]
        values = end_outputs(starts, step, critic).sigmoid().min(-1).values.tolist() if starts else []
        return [max(low - value, value - high, 0.0) for value in values]

    def _next(count: int, step: Step) -> list[Task]:
        """The next new tasks of the source."""
        size, seed, first = source.size("train"), step.clock.seed, memory.place
        memory.place += count
        places = range(first, memory.place)
        if size is None:
            return _at([place + (seed << 32) for place in places], step)
        return _at([randomness.placed(place % size, size, seed, "failed", place // size) for place in places], step)

    def _at(indices: list[int], step: Step) -> list[Task]:
        drawn = tasks_of(source, "train", indices, step)
        return [replace(task, given={**task.given, PLACE: index}) for task, index in zip(drawn, indices, strict=True)]

    def saw(groups: list[Group], step: Step) -> None:
        for group in groups:
            if PLACE in group.task.given and group.traces and not any("replayed" in t.tags for t in group.traces):
                memory.saw(int(group.task.given[PLACE]), all(t.scores["reward"] <= above for t in group.traces))

    return Draw(
        name="failed_again",
        call=call,
        heldout=plain.heldout,
        saw=saw,
        reads=frozenset({f"model:{critic}.score"}),
        writes=plain.writes | names("given", [PLACE]),
        state=(memory,),
    )
