"""Solved problems apart from the others, and drawn seldom (MiMo, arXiv 2505.07608, section 3.3.2)."""

from __future__ import annotations

from typing import Any

from burnish.core import randomness
from burnish.core.parts import Draw, Part, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.draw.failed import PLACE
from burnish.draw.rated import placed
from burnish.draw.tasks import prompts, tasks_of
from burnish.tasks.source import Source

NAME = "easy_pool"


class EasyPool:
    """The indices of the problems whose replies were all right, and the place up to which the source was drawn."""

    name = NAME

    def __init__(self) -> None:
        self.easy: list[int] = []
        self.place = 0

    def saw(self, index: int, solved: bool) -> None:
        """All replies to a problem were right, or not; one that is no longer solved leaves the pool."""
        self.easy = [one for one in self.easy if one != index] + ([index] if solved else [])

    def state_dict(self) -> dict[str, Any]:
        return {"easy": self.easy, "place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.easy, self.place = [int(index) for index in state["easy"]], int(state["place"])


def apart_from_easy(source: Source, pool: EasyPool, alpha: float) -> Draw:
    """Each slot is, with chance alpha, a problem of the pool, where it has any; else the next one that is not in it.

    The others come in the shuffled order of the source. Where all problems are in the pool, they are drawn as without
    it. alpha = 0 never draws a solved problem again.
    """
    plain = prompts(source)

    def call(step: Step) -> list[Task]:
        clock = step.clock
        dice = randomness.rng(clock.seed, NAME, clock.step, clock.tick)
        easy = list(pool.easy)
        chosen = []
        for _ in range(step.settings.prompts):
            again = bool(easy) and dice.random() < alpha
            chosen.append(dice.choice(easy) if again else _next(step, set(easy)))
        step.notes.add("draw/easy", sum(index in easy for index in chosen), len(chosen))
        step.notes.add("easy_pool", len(pool.easy))
        return [placed(task, i) for task, i in zip(tasks_of(source, "train", chosen, step), chosen, strict=True)]

    def _next(step: Step, easy: set[int]) -> int:
        size, seed = source.size("train"), step.clock.seed
        for _ in range(size or 1):
            place = pool.place
            pool.place += 1
            if size is None:
                return place + (seed << 32)
            index = randomness.placed(place % size, size, seed, NAME, place // size)
            if index not in easy:
                break
        return index

    return Draw(
        name="apart_from_easy",
        call=call,
        heldout=plain.heldout,
        reads=frozenset({f"store:{NAME}"}),
        writes=plain.writes | names("given", [PLACE]),
        state=(pool,),
    )


@supplies(f"store:{NAME}")
def note_solved(pool: EasyPool, *, score: str = "reward", above: float = 0.5) -> Part:
    """Tells the pool which problems had right replies alone; it stands in score, before any group is dropped."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            if group.traces:
                solved = all(trace.scores[score] > above for trace in group.traces)
                pool.saw(int(group.task.given[PLACE]), solved)
        return groups

    return Part(
        name="note_solved",
        call=call,
        reads=frozenset({f"score:{score}", f"given:{PLACE}"}),
        writes=frozenset({f"store:{NAME}"}),
        state=(pool,),
    )
