"""`glyphs`: read a line of digits and capital letters."""

from __future__ import annotations

import random

from burnish.media.drawing import COLOURS, GLYPHS, INK, Pixels, blank, glyph, put
from burnish.tasks.pictures.family import PictureFamily
from burnish.verifiers.answer_line import format_reply
from burnish.verifiers.similarity import edit_distance

Line = tuple[str, tuple[int, ...], tuple[int, ...], int, int]  # text, tops, gaps before each, colour, grey

_ALIKE = ("083", "17T", "5369", "CEFL", "AHKX", "0U", "6E", "8A", "9P", "FP", "2E", "4H")
CONFUSED = {
    letter: sorted({one for group in _ALIKE if letter in group for one in group} - {letter}) for letter in GLYPHS
}
_INKS = (INK, *COLOURS.values())
_MANY = {1: (1, 2), 2: (2, 3), 3: (4, 5), 4: (5, 6)}  # glyphs by level


class Glyphs(PictureFamily):
    """1-2, 2-3, 4-5 or 5-6 glyphs in one colour, not quite on a line. The score is 1 - edit distance / length."""

    name = "glyphs"
    summary = "read the digits and letters of a drawn picture, for models that see"

    def draw(self, dice: random.Random) -> Line:
        many = dice.randint(*_MANY[self.level])
        text = "".join(dice.choice(GLYPHS) for _ in range(many))
        room = 64 - many * 6
        gaps = tuple(dice.randint(2, max(2, min(6, room // many))) for _ in text)
        top = dice.randint(0, 48)
        tops = tuple(top + dice.randint(0, 4) for _ in text)
        return text, tops, gaps, dice.randrange(len(_INKS)), dice.randrange(170, 250)

    def identity(self, problem: Line) -> str:
        return " ".join(map(str, problem))

    def pictures(self, problem: Line) -> list[Pixels]:
        text, tops, gaps, ink, grey = problem
        pixels, x = blank(grey), 0
        for letter, top, gap in zip(text, tops, gaps, strict=True):
            x += gap
            put(pixels, glyph(letter, 2), top, x, _INKS[ink])
            x += 6
        return [pixels]

    def question(self, problem: Line) -> str:
        return "Read it."

    def answer(self, problem: Line) -> str:
        return problem[0]

    def solve(self, problem: Line, dice: random.Random) -> str:
        return format_reply(problem[0])

    def blunder(self, problem: Line, dice: random.Random) -> str:
        """One glyph taken for another that looks like it, or left out, or two swapped."""
        text, slip = list(problem[0]), dice.random()
        at = dice.randrange(len(text))
        if slip < 0.15 and len(text) > 1:
            del text[at]
        elif slip < 0.25 and at:
            text[at - 1], text[at] = text[at], text[at - 1]
        else:
            text[at] = dice.choice(CONFUSED[text[at]])
        return format_reply("".join(text))

    def credit(self, problem: Line, said: str) -> float:
        right = problem[0]
        return max(0.0, 1.0 - edit_distance(said[:64], right) / len(right))

    def judge(self, problem: Line, said: str) -> str:
        return "" if said == problem[0] else f"it says {problem[0]}, not {said[:40]!r}"
