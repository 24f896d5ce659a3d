"""`arrow`: questions whose answers need no writer: is a clip shown backwards, how was a picture turned, which half is
missing. The options are shuffled, so that one who always names the same letter earns one in their number.
"""

from __future__ import annotations

import random

import numpy as np

from burnish.core.seeds import rng
from burnish.media.drawing import ACROSS, BOARD, COLOURS, KINDS, Pixels, blank, put_on_board
from burnish.tasks.pictures.family import PictureFamily
from burnish.tasks.pictures.sprites import MOVES, cell_at
from burnish.verifiers.answer_line import format_reply

Shape = tuple[str, str, int]
Made = tuple[tuple[Shape, ...], str, str, int, int]  # shapes, direction, what is right, grey, seed of the options

TURNS = ("not turned", "turned left", "turned right", "upside down")
TIMES = ("forwards", "backwards")
HALVES = ("left", "right", "top", "bottom")


def _told_apart(cells: list[int]) -> bool:
    """Whether each half of the board has a shape and no turn leaves the cells as they are; of one shape, always."""
    if len(cells) == 1:
        return True
    board = np.zeros((ACROSS, ACROSS), dtype=bool)
    board.flat[cells] = True
    halves = (board[:, :2], board[:, 2:], board[:2], board[2:])
    return all(half.any() for half in halves) and all((np.rot90(board, turn) != board).any() for turn in (1, 2))


class Arrow(PictureFamily):
    """Level 1: whether a clip of a sprite that goes a given way runs forwards or backwards. 2: which half of the
    second picture is empty. 3: how the second of two pictures was turned. 4: the same with five shapes.
    """

    name = "arrow"
    summary = "tell how a clip or a picture was changed, by options, for models that see"

    def draw(self, dice: random.Random) -> Made:
        many = 1 if self.level == 1 else (4, 3, 5)[self.level - 2]
        cells = sorted(dice.sample(range(ACROSS * ACROSS), many))
        while not _told_apart(cells):
            cells = sorted(dice.sample(range(ACROSS * ACROSS), many))
        shapes = tuple((dice.choice(KINDS), dice.choice([*COLOURS]), cell) for cell in cells)
        right = dice.choice((TIMES, HALVES, TURNS, TURNS)[self.level - 1])
        return shapes, dice.choice([*MOVES]), right, dice.randrange(150, 250), dice.getrandbits(30)

    def identity(self, problem: Made) -> str:
        return " ".join(map(str, problem))

    def pictures(self, problem: Made) -> list[Pixels]:
        shapes, way, right, grey, _ = problem
        first = self._board(shapes, grey)
        if self.level == 1:
            (kind, colour, cell), *_ = shapes
            cells = [cell_at((kind, colour, cell, way, way, (1, 4)), frame, 9) for frame in range(1, 5)]
            clip = [self._board(((kind, colour, at),), grey) for at in cells]
            return clip if right == TIMES[0] else clip[::-1]
        if self.level == 2:
            half, other, empty = BOARD // 2, first.copy(), blank(grey, BOARD)
            parts = (np.s_[:, :half], np.s_[:, half:], np.s_[:half, :], np.s_[half:, :])
            part = parts[HALVES.index(right)]
            other[part] = empty[part]
            return [first, other]
        return [first, np.ascontiguousarray(np.rot90(first, {1: 1, 2: -1, 3: 2}.get(TURNS.index(right), 0)))]

    def _board(self, shapes: tuple[Shape, ...], grey: int) -> Pixels:
        pixels = blank(grey, BOARD)
        for kind, colour, cell in shapes:
            put_on_board(pixels, kind, cell, COLOURS[colour])
        return pixels

    def options(self, problem: Made) -> list[str]:
        """What can be chosen, in the order of the letters."""
        names = [*(TIMES, HALVES, TURNS, TURNS)[self.level - 1]]
        rng("options", problem[4]).shuffle(names)
        return names

    def question(self, problem: Made) -> str:
        options = " ".join(f"{letter}) {name}" for letter, name in zip("abcd", self.options(problem), strict=False))
        if self.level == 1:
            return f"It goes {problem[1]}. The clip runs {options}"
        return f"{'What is empty?' if self.level == 2 else 'The second is'} {options}"

    def answer(self, problem: Made) -> str:
        return "abcd"[self.options(problem).index(problem[2])]

    def solve(self, problem: Made, dice: random.Random) -> str:
        return format_reply(self.answer(problem))

    def blunder(self, problem: Made, dice: random.Random) -> str:
        return format_reply(dice.choice("abcd"[: len(self.options(problem))]))

    def judge(self, problem: Made, said: str) -> str:
        right = self.answer(problem)
        return "" if said == right else f"the answer is {right}, not {said[:40]!r}"
