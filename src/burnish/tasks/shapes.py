"""`shapes`: how many shapes a drawn picture has, of all, of a colour, of a kind, or of both."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish.core.messages import IMAGE
from burnish.media.store import STORE
from burnish.tasks.family import Content, Family
from burnish.verifiers.answer_line import format_reply

SIDE = 32  # pixels of a picture
CELL = 8  # of the grid on which shapes stand; each fills the middle of its cell
COLOURS = {"red": (220, 40, 40), "green": (40, 170, 60), "blue": (50, 80, 220)}
KINDS = ("circle", "square", "cross")
MOST = 5  # shapes in a picture

Shape = tuple[str, str, int]  # kind, colour, cell
Problem = tuple[
    str, str, tuple[Shape, ...], int
]  # the kind and the colour that are asked for ("": any), shades of grey

Pixels = npt.NDArray[np.uint8]


def _mask(kind: str) -> npt.NDArray[np.bool_]:
    """[CELL, CELL]: the pixels of a shape."""
    y, x = np.mgrid[0:CELL, 0:CELL] - (CELL - 1) / 2
    if kind == "circle":
        return np.asarray(x**2 + y**2 <= 9.5)
    if kind == "square":
        return np.asarray(np.maximum(abs(x), abs(y)) <= 2.5)
    return np.asarray((np.minimum(abs(x), abs(y)) <= 0.5) & (np.maximum(abs(x), abs(y)) <= 3.5))


def drawn(shapes: tuple[Shape, ...], grey: int) -> Pixels:
    """[SIDE, SIDE, 3]: a picture of these shapes on a grey ground."""
    pixels = np.full((SIDE, SIDE, 3), grey, dtype=np.uint8)
    across = SIDE // CELL
    for kind, colour, cell in shapes:
        y, x = cell // across * CELL, cell % across * CELL
        pixels[y : y + CELL, x : x + CELL][_mask(kind)] = COLOURS[colour]
    return pixels


def as_file(pixels: Pixels) -> bytes:
    """A picture as a PPM file: the same bytes on every machine, with no library."""
    height, width, _ = pixels.shape
    return f"P6 {width} {height} 255\n".encode() + pixels.tobytes()


class Shapes(Family):
    """Up to five shapes in three kinds and colours. Level 1 asks for all of them, 2 for those of a colour, 3 for those
    of a kind, 4 for those of a colour and a kind.
    """

    name = "shapes"
    summary = "count the shapes of a drawn picture, for models that see"

    def draw(self, dice: random.Random) -> Problem:
        kind = dice.choice(KINDS) if self.level in (3, 4) else ""
        colour = dice.choice([*COLOURS]) if self.level in (2, 4) else ""
        cells = dice.sample(range((SIDE // CELL) ** 2), dice.randint(1, MOST))
        shapes = tuple((dice.choice(KINDS), dice.choice([*COLOURS]), cell) for cell in sorted(cells))
        return kind, colour, shapes, dice.randrange(150, 250)

    def identity(self, problem: Problem) -> str:
        kind, colour, shapes, grey = problem
        return f"{kind} {colour} {grey} " + " ".join(f"{k}{c}{at}" for k, c, at in shapes)

    def ask(self, problem: Problem) -> Content:
        kind, colour, shapes, grey = problem
        several = {"": "shapes", "cross": "crosses"}.get(kind, f"{kind}s")
        words = f"{colour} {several}".strip()
        picture = STORE.keep(as_file(drawn(shapes, grey)))
        return [{"type": IMAGE, IMAGE: picture}, {"type": "text", "text": f"How many {words}?"}]

    def answer(self, problem: Problem) -> str:
        kind, colour, shapes, _ = problem
        return str(sum((not kind or k == kind) and (not colour or c == colour) for k, c, _ in shapes))

    def solve(self, problem: Problem, dice: random.Random) -> str:
        return format_reply(self.answer(problem))

    def blunder(self, problem: Problem, dice: random.Random) -> str:
        """Off by one, or the number of a neighbour: another colour or another kind."""
        kind, colour, shapes, grey = problem
        slip = dice.choice(("one", "one", "colour", "kind"))
        if slip == "one" or not (colour if slip == "colour" else kind):
            return format_reply(str(max(0, int(self.answer(problem)) + dice.choice((-1, 1)))))
        if slip == "colour":
            return format_reply(self.answer((kind, dice.choice([*COLOURS]), shapes, grey)))
        return format_reply(self.answer((dice.choice(KINDS), colour, shapes, grey)))

    def judge(self, problem: Any, said: str) -> str:
        right = self.answer(problem)
        return "" if said == right else f"the answer is {right}, not {said[:40]!r}"
