"""`frames`: plan in frames: from a frame of a frozen lake write the next one, one step nearer to the goal.

A frame is its cells row by row: ice <c0>, hole <c1>, walker <c2>, goal <c3>, the walker at the goal <c4>.
"""

from __future__ import annotations

import random
from collections import deque

from burnish.tasks.codes.code import read, written
from burnish.tasks.family import Family
from burnish.verifiers.answer_line import format_reply

ICE, HOLE, WALKER, GOAL, THERE = range(5)
_SIDE = {1: 3, 2: 4, 3: 5, 4: 6}
Lake = tuple[int, tuple[int, ...], int, int]  # side, holes, the cells of walker and goal


def near(side: int, cell: int) -> list[int]:
    """The neighbours of a cell."""
    y, x = divmod(cell, side)
    return [
        b * side + a for b, a in ((y, x - 1), (y, x + 1), (y - 1, x), (y + 1, x)) if 0 <= b < side and 0 <= a < side
    ]


def distances(lake: Lake) -> dict[int, int]:
    """Steps to the goal from each cell that reaches it over ice."""
    side, holes, _, goal = lake
    found, queue = {goal: 0}, deque([goal])
    while queue:
        cell = queue.popleft()
        for other in near(side, cell):
            if other not in found and other not in holes:
                found[other] = found[cell] + 1
                queue.append(other)
    return found


def frame(lake: Lake) -> list[int]:
    """The cells of a lake."""
    side, holes, walker, goal = lake
    cells = [HOLE if at in holes else ICE for at in range(side * side)]
    cells[goal] = GOAL
    cells[walker] = THERE if walker == goal else WALKER
    return cells


def progress(lake: Lake, cells: list[int] | None) -> str:
    """What a written frame is after this one: "nearer", "no nearer" (a valid step, or none), or "invalid"."""
    side, holes, walker, goal = lake
    steps = distances(lake)
    for cell in (walker, *near(side, walker)):
        if cell not in holes and cells == frame((side, holes, cell, goal)):
            return "nearer" if steps.get(cell, 99) < steps[walker] else "no nearer"
    return "invalid"


class Frames(Family):
    """Lakes of 3 x 3 to 6 x 6 cells by level. A frame is right if its one change is a step nearer to the goal."""

    name = "frames"
    summary = "write the next frame of a walk over a frozen lake, cell by cell"

    def draw(self, dice: random.Random) -> Lake:
        side = _SIDE[self.level]
        while True:
            walker, goal, *holes = dice.sample(range(side * side), 2 + dice.randint(0, side * side // 4))
            lake = (side, tuple(sorted(holes)), walker, goal)
            if walker in distances(lake):
                return lake

    def identity(self, problem: Lake) -> str:
        return " ".join(map(str, problem))

    def ask(self, problem: Lake) -> str:
        return f"Next: {written('c', frame(problem))}"

    def steps(self, problem: Lake) -> tuple[list[Lake], list[Lake]]:
        """The frames after steps that lead nearer, and those after all other changes of the walker's cell."""
        side, holes, walker, goal = problem
        far = distances(problem)
        right = [at for at in near(side, walker) if at not in holes and far.get(at, 99) < far[walker]]
        wrong = [at for at in range(side * side) if at not in right]
        return [(side, holes, at, goal) for at in right], [(side, holes, at, goal) for at in wrong]

    def answer(self, problem: Lake) -> str:
        return written("c", frame(self.steps(problem)[0][0]))

    def solve(self, problem: Lake, dice: random.Random) -> str:
        return format_reply(written("c", frame(dice.choice(self.steps(problem)[0]))))

    def blunder(self, problem: Lake, dice: random.Random) -> str:
        """A step away or into a hole, a jump, or a walker that is in two places."""
        side, _, walker, _ = problem
        wrong = self.steps(problem)[1]
        by = [one for one in wrong if one[2] in near(side, walker)]
        cells = frame(dice.choice(by if by and dice.random() < 0.6 else wrong))
        if dice.random() < 0.2:
            cells[walker] = WALKER
        return format_reply(written("c", cells))

    def judge(self, problem: Lake, said: str) -> str:
        found = progress(problem, read("c", said))
        return "" if found == "nearer" else f"the frame is {found}; {self.answer(problem)} is right"
