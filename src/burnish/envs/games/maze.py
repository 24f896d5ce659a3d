"""`maze`: walk through a maze of which only the passages of the own cell are seen."""

from __future__ import annotations

import random
import re
from collections import deque
from dataclasses import dataclass

from burnish.envs.games.game import Game, GameFamily
from burnish.envs.protocol import Outcome

Cell = tuple[int, int]
MOVES: dict[str, Cell] = {"n": (0, 1), "e": (1, 0), "s": (0, -1), "w": (-1, 0)}
_WORD = re.compile(r"\b(n|e|s|w|north|east|south|west)\b", re.IGNORECASE)
_SIDE = {1: 3, 2: 4, 3: 6}
_EXTRA = {1: 2, 2: 3, 3: 5}  # passages beside those of a spanning tree


@dataclass(frozen=True)
class Plan:
    """A maze. passages: pairs of neighbouring cells, each with the smaller one first; cells count from 1,1."""

    side: int
    passages: tuple[tuple[Cell, Cell], ...]
    start: Cell
    goal: Cell

    def open(self, cell: Cell) -> list[str]:
        """The directions in which a cell can be left."""
        return [name for name, move in MOVES.items() if tuple(sorted((cell, _moved(cell, move)))) in self.passages]

    def distances(self) -> dict[Cell, int]:
        """Steps from each cell to the goal."""
        found, queue = {self.goal: 0}, deque([self.goal])
        while queue:
            cell = queue.popleft()
            for name in self.open(cell):
                if (near := _moved(cell, MOVES[name])) not in found:
                    found[near] = found[cell] + 1
                    queue.append(near)
        return found


class Walk(Game):
    """Reward 1 at the goal. A step into a wall stays where it is; all steps count. The state is the cell."""

    def __init__(self, position: Plan) -> None:
        super().__init__(position)
        self.far = position.distances()
        self.most = 2 * self.far[position.start] + 2
        self.cell = position.start

    def opening(self) -> str:
        self.cell = self.position.start
        x, y = self.position.goal
        return f"Go to {x},{y}. {self._view()}"

    def act(self, action: str) -> Outcome:
        said = _WORD.findall(action)
        move = said[-1][0].lower() if said else ""
        if move not in self.position.open(self.cell):
            return Outcome(f"{'wall' if move else 'say n, e, s or w'}. {self._view()}", 0.0)
        self.cell = _moved(self.cell, MOVES[move])
        if self.cell == self.position.goal:
            return Outcome("there", 1.0, terminated=True)
        return Outcome(self._view(), 0.0)

    def expert(self) -> str:
        """A step of a shortest way, which sees the whole maze."""
        ways = self.position.open(self.cell)
        nearest: str = min(ways, key=lambda name: self.far[_moved(self.cell, MOVES[name])])
        return nearest

    def key(self) -> str:
        return f"{self.cell[0]},{self.cell[1]}"

    def _view(self) -> str:
        return f"At {self.key()}: {' '.join(self.position.open(self.cell))}"


class Maze(GameFamily):
    """Mazes of 3x3, 4x4 or 6x6 cells by level, with a few loops, and twice the shortest way plus 2 steps to go."""

    name = "maze"
    summary = "walk to a cell through passages that are seen one cell at a time (several turns)"
    game = Walk

    def draw(self, dice: random.Random) -> Plan:
        side = _SIDE[self.level]
        cells = [(x, y) for x in range(1, side + 1) for y in range(1, side + 1)]
        walls = [(a, b) for a in cells for move in ("n", "e") if (b := _moved(a, MOVES[move])) in cells]
        dice.shuffle(walls)
        part = {cell: cell for cell in cells}

        def root(cell: Cell) -> Cell:
            while part[cell] != cell:
                cell = part[cell]
            return cell

        passages: list[tuple[Cell, Cell]] = []
        rest: list[tuple[Cell, Cell]] = []
        for a, b in walls:
            (rest if root(a) == root(b) else passages).append((a, b))
            part[root(a)] = root(b)
        start, goal = dice.sample(cells, 2)
        return Plan(side, tuple(sorted(passages + rest[: _EXTRA[self.level]])), start, goal)


def _moved(cell: Cell, move: Cell) -> Cell:
    return cell[0] + move[0], cell[1] + move[1]
