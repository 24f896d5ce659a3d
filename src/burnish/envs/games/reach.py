"""`reach`: walk to an object on a board that is seen from above, one picture a step."""

from __future__ import annotations

import random
import re
from collections import deque
from dataclasses import dataclass

from burnish.core.messages import Message
from burnish.envs.games.game import Game, GameFamily
from burnish.envs.protocol import Outcome
from burnish.media.drawing import ACROSS, BOARD, COLOURS, KINDS, Pixels, blank, put, put_on_board, shape
from burnish.media.looked import looked

MOVES = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}
YOU, WALL = (240, 200, 30), (60, 60, 60)
_WORD = re.compile(r"\b(left|right|up|down)\b", re.IGNORECASE)
_SHAPE = {1: (1, 0), 2: (2, 1), 3: (3, 3)}  # objects and walls by level


@dataclass(frozen=True)
class Room:
    """Cells count row by row. objects: kind, colour and cell; the first is the one to reach."""

    start: int
    objects: tuple[tuple[str, str, int], ...]
    walls: tuple[int, ...]
    grey: int

    @property
    def goal(self) -> int:
        return self.objects[0][2]

    def moved(self, cell: int, move: str) -> int:
        """Where a step ends: in the same cell before a wall or the edge."""
        dy, dx = MOVES[move]
        y, x = cell // ACROSS + dy, cell % ACROSS + dx
        there = y * ACROSS + x
        return there if 0 <= y < ACROSS and 0 <= x < ACROSS and there not in self.walls else cell

    def distances(self) -> dict[int, int]:
        """Steps from each cell to the goal, past the other objects."""
        wrong = {cell for _, _, cell in self.objects[1:]}
        found, queue = {self.goal: 0}, deque([self.goal])
        while queue:
            cell = queue.popleft()
            for move in MOVES:
                near = self.moved(cell, move)
                if near not in found and near not in wrong:
                    found[near] = found[cell] + 1
                    queue.append(near)
        return found

    def drawn(self, cell: int) -> Pixels:
        """The board with the walker in a cell."""
        pixels = blank(self.grey, BOARD)
        side = BOARD // ACROSS
        for wall in self.walls:
            put(pixels, shape("square", side, side), wall // ACROSS * side, wall % ACROSS * side, WALL)
        for kind, colour, at in self.objects:
            put_on_board(pixels, kind, at, COLOURS[colour])
        put_on_board(pixels, "circle", cell, YOU)
        return pixels


class Reaching(Game):
    """Reward 1 at the object that is named; stepping on another ends the episode with 0. A bump is a step, too."""

    def __init__(self, position: Room) -> None:
        super().__init__(position)
        self.far = position.distances()
        self.most = self.far[position.start] + 3
        self.cell = position.start

    def opening(self) -> tuple[Message, ...]:
        self.cell = self.position.start
        kind, colour, _ = self.position.objects[0]
        return looked(self.position.drawn(self.cell), f"Go to the {colour} {kind}.")

    def act(self, action: str) -> Outcome:
        said = _WORD.findall(action)
        there = self.position.moved(self.cell, said[-1].lower()) if said else self.cell
        if there == self.position.goal:
            return Outcome("there", 1.0, terminated=True)
        if any(there == cell for _, _, cell in self.position.objects[1:]):
            return Outcome("wrong", 0.0, terminated=True)
        told = "" if there != self.cell else "bump" if said else "say left, right, up or down"
        self.cell = there
        return Outcome(looked(self.position.drawn(there), told), 0.0)

    def expert(self) -> str:
        """A step of a shortest way."""
        return min(MOVES, key=lambda move: self.far.get(self.position.moved(self.cell, move), 99))

    def key(self) -> str:
        return str(self.cell)


class Reach(GameFamily):
    """A board of 4 x 4 cells with 1, 2 or 3 objects and 0, 1 or 3 walls by level, and 3 steps to spare."""

    name = "reach"
    summary = "walk to an object on a drawn board, for models that see (several turns)"
    game = Reaching

    def draw(self, dice: random.Random) -> Room:
        objects, walls = _SHAPE[self.level]
        names = [(kind, colour) for kind in KINDS for colour in COLOURS]
        while True:
            start, *cells = dice.sample(range(ACROSS * ACROSS), 1 + objects + walls)
            things = tuple((k, c, at) for (k, c), at in zip(dice.sample(names, objects), cells, strict=False))
            room = Room(start, things, tuple(sorted(cells[objects:])), dice.randrange(150, 250))
            if room.distances().get(start, 0):
                return room
