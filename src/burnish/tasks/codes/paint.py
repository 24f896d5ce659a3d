"""`paint`: draw what a caption says, as a picture of 16 x 16 pixels. For models that draw (docs/denoisers.md).

A picture is judged by its pixels alone: each counts as the nearest of seven colours, the colour of most of them is the
ground, and what else hangs together is a figure if it has at least five pixels, else a speck.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from burnish.core.task import Verdict
from burnish.media.drawing import Pixels
from burnish.media.drawn import as_text, pixels_in
from burnish.tasks.family import Family

SIDE, CELL, BOX = 16, 4, 3  # pixels of a picture, of the cell of a figure, and of the figure in it
LEAST, SPECKS = 5, 2  # pixels of a figure; of specks that are overlooked
FIGURES = {"red": (230, 40, 40), "green": (40, 190, 60), "blue": (50, 80, 240), "yellow": (240, 220, 40)}
GROUNDS = {"black": (0, 0, 0), "grey": (128, 128, 128), "white": (255, 255, 255)}
PALETTE = np.array([*FIGURES.values(), *GROUNDS.values()], dtype=np.int64)
COLOURS = (*FIGURES, *GROUNDS)
KINDS = {
    "square": np.ones((3, 3), dtype=bool),
    "cross": np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]], dtype=bool),
    "ring": np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool),
}
Caption = tuple[int, str, str, str, int]  # how many, of which colour, kind, on which ground; a number (see Paint)


@dataclass(frozen=True)
class Figure:
    """What hangs together in a picture: its colour, and the kind that it is, or "" where it is none."""

    colour: str
    kind: str


@dataclass(frozen=True)
class Seen:
    """What is in a picture: the ground, the figures, and how many pixels are specks."""

    ground: str
    figures: tuple[Figure, ...]
    specks: int


def painted(figures: list[tuple[int, str, str]], ground: str) -> Pixels:
    """A picture of figures (cell, colour, kind) on a ground."""
    pixels = np.empty((SIDE, SIDE, 3), dtype=np.uint8)
    pixels[:] = GROUNDS[ground]
    for cell, colour, kind in figures:
        y, x = cell // (SIDE // CELL) * CELL, cell % (SIDE // CELL) * CELL
        pixels[y : y + BOX, x : x + BOX][KINDS[kind]] = FIGURES[colour]
    return pixels


def seen(pixels: Pixels) -> Seen:
    """What is in a picture of 16 x 16 pixels."""
    far = ((pixels.astype(np.int64)[:, :, None] - PALETTE) ** 2).sum(-1)
    nearest = far.argmin(-1)
    ground = int(np.bincount(nearest.ravel(), minlength=len(COLOURS)).argmax())
    left = {(int(y), int(x)) for y, x in np.argwhere(nearest != ground)}
    figures, specks = [], 0
    while left:
        part = _together(left)
        if len(part) < LEAST:
            specks += len(part)
        else:
            figures.append(_figure(part, nearest))
    return Seen(COLOURS[ground], tuple(figures), specks)


def _together(left: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Take the pixels that hang together with one of them."""
    queue = [left.pop()]
    for y, x in queue:
        for other in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
            if other in left:
                left.discard(other)
                queue.append(other)
    return queue


def _figure(part: list[tuple[int, int]], nearest: np.ndarray) -> Figure:
    ys, xs = np.array(part).T
    colour = COLOURS[int(np.bincount(nearest[ys, xs], minlength=len(COLOURS)).argmax())]
    high, wide = int(np.ptp(ys)) + 1, int(np.ptp(xs)) + 1
    if (high, wide) != (BOX, BOX):
        return Figure(colour, "")
    mask = np.zeros((BOX, BOX), dtype=bool)
    mask[ys - ys.min(), xs - xs.min()] = True
    return Figure(colour, next((kind for kind, own in KINDS.items() if (own == mask).all()), ""))


class Paint(Family):
    """1-2, 1-4, 1-6 or 1-8 figures of a colour and a kind by level, on a ground.

    Captions are few, so a number tells equal ones apart: a held-out task is drawn from other noise than those that are
    trained on, and mostly by a caption that they have, too.
    """

    name = "paint"
    summary = "draw figures as a picture of 16 x 16 pixels (for models that draw)"

    def draw(self, dice: random.Random) -> Caption:
        return (
            dice.randint(1, 2 * self.level),
            dice.choice([*FIGURES]),
            dice.choice([*KINDS]),
            dice.choice([*GROUNDS]),
            dice.randrange(1 << 20),
        )

    def identity(self, problem: Caption) -> str:
        return " ".join(map(str, problem))

    def ask(self, problem: Caption) -> str:
        count, colour, kind, ground, _ = problem
        many = {"cross": "crosses"}.get(kind, kind + "s") if count > 1 else kind
        return f"Paint {count} {colour} {many} on {ground}."

    def answer(self, problem: Caption) -> str:
        return " ".join(map(str, problem[:4]))

    def solve(self, problem: Caption, dice: random.Random) -> str:
        count, colour, kind, ground, _ = problem
        cells = dice.sample(range((SIDE // CELL) ** 2), count)
        return as_text(painted([(cell, colour, kind) for cell in cells], ground))

    def blunder(self, problem: Caption, dice: random.Random) -> str:
        """One figure more or less, or one of another colour or kind."""
        count, colour, kind, ground, _ = problem
        slip = dice.randrange(3)
        if slip == 0:
            count = max(1, count + dice.choice((-1, 1)))
        cells = dice.sample(range((SIDE // CELL) ** 2), count)
        figures = [(cell, colour, kind) for cell in cells]
        if slip == 1:
            figures[0] = (cells[0], dice.choice([*FIGURES]), kind)
        elif slip == 2:
            figures[0] = (cells[0], colour, dice.choice([*KINDS]))
        return as_text(painted(figures, ground))

    def mistake(self, problem: Caption, dice: random.Random) -> str:
        for _ in range(1000):
            reply = self.blunder(problem, dice)
            if not self.verdict(problem, reply).correct:
                return reply
        raise AssertionError(f"{self.name}: no blunder on {problem!r} is wrong")

    def judge(self, problem: Caption, said: str) -> str:
        return self.verdict(problem, said).reason

    def verdict(self, problem: Caption, reply: str) -> Verdict:
        """A quarter for each of: the ground, as many figures, the share of them of the colour, and of the kind."""
        pixels = pixels_in(reply.strip())
        if pixels is None or pixels.shape != (SIDE, SIDE, 3):
            return Verdict(0.0, False, f"the reply is no picture of {SIDE} x {SIDE} pixels")
        count, colour, kind, ground, _ = problem
        found = seen(pixels)
        many = max(len(found.figures), 1)
        colours = sum(figure.colour == colour for figure in found.figures) / many
        kinds = sum(figure.kind == kind for figure in found.figures) / many
        score = ((found.ground == ground) + (len(found.figures) == count) + colours + kinds) / 4
        wrong = self._wrong(problem, found, colours, kinds)
        return Verdict(score, not wrong, wrong)

    def _wrong(self, problem: Caption, found: Seen, colours: float, kinds: float) -> str:
        count, colour, kind, ground, _ = problem
        if found.ground != ground:
            return f"the ground is {found.ground}, not {ground}"
        if len(found.figures) != count:
            return f"it has {len(found.figures)} figures, not {count}"
        if colours < 1:
            return f"not all figures are {colour}"
        if kinds < 1:
            return f"not all figures are a {kind}"
        return f"{found.specks} pixels belong to no figure" if found.specks > SPECKS else ""
