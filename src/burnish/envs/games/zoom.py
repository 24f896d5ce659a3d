"""`zoom`: read a letter of a large picture that is seen small, after looking at a part of it in full size.

Places are in units of 16 pixels of the large picture, from 0 to 16, which are 4 pixels of the small one.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import numpy as np

from burnish.core.messages import Message
from burnish.envs.games.game import Game, GameFamily
from burnish.envs.protocol import Outcome
from burnish.media.drawing import COLOURS, GLYPHS, INK, SIDE, Pixels, blank, glyph, put, shape
from burnish.media.looked import looked
from burnish.verifiers.answer_line import answer_of, format_reply

LARGE, STEP = 4 * SIDE, 16  # pixels of the whole picture's side, and of a unit
TILE = LARGE // 4
_CROP = re.compile(r"\bcrop (\d{1,2}) (\d{1,2})\b")
_MANY = {1: 1, 2: 2, 3: 3}
AGAIN = "that place is not in the picture"


@dataclass(frozen=True)
class Poster:
    """marks: the colour of a square, the letter on its right, and the pixel of its upper left corner. The first is
    asked about.
    """

    marks: tuple[tuple[str, str, int, int], ...]
    grey: int

    def drawn(self) -> Pixels:
        """[256, 256, 3]"""
        pixels = blank(self.grey, LARGE)
        for colour, letter, x, y in self.marks:
            put(pixels, shape("square", 20, 20), y, x, COLOURS[colour])
            put(pixels, glyph(letter, 3), y + 2, x + 24, INK)
        return pixels

    def small(self) -> Pixels:
        """[64, 64, 3]: each pixel is the mean of 4 x 4."""
        small: Pixels = self.drawn().reshape(SIDE, 4, SIDE, 4, 3).mean((1, 3)).round().astype(np.uint8)
        return small

    def part(self, x: int, y: int) -> Pixels:
        """[64, 64, 3]: the full pixels around a place, as far as the edges allow."""
        left, top = (min(LARGE - SIDE, max(0, at * STEP - SIDE // 2)) for at in (x, y))
        return self.drawn()[top : top + SIDE, left : left + SIDE]


class Zooming(Game):
    """`crop x y` shows the part around a place; an answer ends the episode: reward 1 for the letter. A place beyond the
    picture shows the whole picture again, and says so. The third action is the last.
    """

    most = 3

    def __init__(self, position: Poster) -> None:
        super().__init__(position)
        self.seen: tuple[int, int] | None = None

    def opening(self) -> tuple[Message, ...]:
        self.seen = None
        return looked(self.position.small(), f"Read what is beside the {self.position.marks[0][0]} square.")

    def act(self, action: str) -> Outcome:
        said = answer_of(action)
        if said is not None:
            right = said == self.position.marks[0][1]
            return Outcome("right" if right else "wrong", float(right), terminated=True)
        places = _CROP.findall(action)
        x, y = map(int, places[-1]) if places else (99, 99)
        if max(x, y) > LARGE // STEP:
            return Outcome(looked(self.position.small(), AGAIN), 0.0, info={"valid": False})
        self.seen = (x, y)
        return Outcome(looked(self.position.part(x, y), ""), 0.0)

    def expert(self) -> str:
        """The part around the letter, and then the letter."""
        _, letter, x, y = self.position.marks[0]
        place = ((x + 22) // STEP, (y + 10) // STEP)
        return format_reply(letter) if self.seen == place else f"crop {place[0]} {place[1]}"

    def key(self) -> str:
        return f"{self.seen}"


class Zoom(GameFamily):
    """Pictures of 256 x 256 with 1, 2 or 3 letters beside squares of different colours."""

    name = "zoom"
    summary = "read a letter of a large drawn picture by looking closer, for models that see (several turns)"
    game = Zooming

    def draw(self, dice: random.Random) -> Poster:
        many = _MANY[self.level]
        tiles = dice.sample([(x, y) for x in range(4) for y in range(4)], many)
        colours = dice.sample([*COLOURS], many)
        marks = tuple(
            (colour, dice.choice(GLYPHS), x * TILE + dice.randint(2, 26), y * TILE + dice.randint(2, 40))
            for colour, (x, y) in zip(colours, tiles, strict=True)
        )
        return Poster(marks, dice.randrange(170, 250))
