"""`page`: one action on a drawn page of buttons and fields: click, type or scroll.

Answers: `click x y`, `type x y WORD`, `scroll down`; places are in units of 4 pixels, from 0 to 16.
"""

from __future__ import annotations

import random
import re

import numpy as np

from burnish.media.drawing import COLOURS, GLYPHS, INK, UNIT, Pixels, blank, glyph, put
from burnish.tasks.pictures.family import PictureFamily
from burnish.verifiers.answer_line import format_reply

HIGH, WIDE = 4, 3  # units of an element
SIDE_UNITS = 16.0  # of the page
Action = tuple[str, int, int, str]  # its name, its place, its word
WHITE = (250, 250, 250)
Element = tuple[str, str, int, int]  # "button" or "field", its label, the units of its upper left corner: x, y
Page = tuple[tuple[Element, ...], str, str, str, int]  # elements, the action, its label, its word, grey

_ACTION = re.compile(r"(click|type) (\d{1,2}) (\d{1,2})(?: (\S{1,20}))?")
_MANY = (2, 4, 5, 6)


def inside(element: Element, x: int, y: int) -> bool:
    """Whether a point is in an element, its edge included."""
    return element[2] <= x <= element[2] + WIDE and element[3] <= y <= element[3] + HIGH


def read(said: str) -> Action | None:
    """An action: its name, its place and its word; None if the text is none."""
    if said == "scroll down":
        return "scroll", 0, 0, "down"
    found = _ACTION.fullmatch(said)
    if not found or (found[1] == "click") != (found[4] is None):
        return None
    return found[1], int(found[2]), int(found[3]), found[4] or ""


class PageTask(PictureFamily):
    """Level 1: click one of 2 buttons. 2: of 4. 3: click a button, or type a number in a field, of 5 elements. 4: of 6,
    and scroll down where what is named is not there.
    """

    name = "page"
    summary = "click, type or scroll on a drawn page, for models that see"

    def draw(self, dice: random.Random) -> Page:
        many = _MANY[self.level - 1]
        places = dice.sample([(x, y) for x in range(4) for y in range(3)], many)
        elements = tuple(
            (
                dice.choice(("button", "field")) if self.level > 2 else "button",
                label,
                x * 4 + dice.randint(0, 1),
                y * 5 + dice.randint(0, 1),
            )
            for label, (x, y) in zip(dice.sample(GLYPHS[10:], many), places, strict=True)
        )
        grey = dice.randrange(150, 230)
        if self.level == 4 and dice.random() < 0.2:
            absent = dice.choice([one for one in GLYPHS[10:] if all(one != element[1] for element in elements)])
            return elements, "scroll", absent, "", grey
        kind, label = dice.choice(elements)[:2]
        word = str(dice.randint(10, 99)) if kind == "field" else ""
        return elements, "type" if word else "click", label, word, grey

    def identity(self, problem: Page) -> str:
        return " ".join(map(str, problem))

    def pictures(self, problem: Page) -> list[Pixels]:
        pixels = blank(problem[4])
        for i, (kind, label, x, y) in enumerate(problem[0]):
            high, wide = HIGH * UNIT, WIDE * UNIT
            field = kind == "field"
            put(
                pixels,
                np.ones((high, wide), dtype=bool),
                y * UNIT,
                x * UNIT,
                INK if field else [*COLOURS.values()][i % 3],
            )
            if field:
                put(pixels, np.ones((high - 2, wide - 2), dtype=bool), y * UNIT + 1, x * UNIT + 1, WHITE)
            put(pixels, glyph(label, 2), y * UNIT + 3, x * UNIT + 3, INK if field else WHITE)
        return [pixels]

    def question(self, problem: Page) -> str:
        _, action, label, word, _ = problem
        return f"Type {word} in {label}." if action == "type" else f"Click {label}."

    def wanted(self, problem: Page) -> Element | None:
        """The element that is named; None where it is not on the page."""
        return next((one for one in problem[0] if one[1] == problem[2]), None)

    def _said(self, action: str, element: Element, word: str, dice: random.Random | None = None) -> str:
        dx, dy = (dice.randint(-1, 1), dice.randint(-1, 1)) if dice else (0, 0)
        place = f"{action} {element[2] + 1 + max(0, dx)} {element[3] + 2 + dy}"
        return f"{place} {word}" if action == "type" else place

    def answer(self, problem: Page) -> str:
        element = self.wanted(problem)
        return "scroll down" if element is None else self._said(problem[1], element, problem[3])

    def solve(self, problem: Page, dice: random.Random) -> str:
        element = self.wanted(problem)
        return format_reply("scroll down" if element is None else self._said(problem[1], element, problem[3], dice))

    def blunder(self, problem: Page, dice: random.Random) -> str:
        """A neighbour, a point just outside, another action, or another word."""
        elements, action, _, word, _ = problem
        element, slip = self.wanted(problem), dice.random()
        if element is None or slip < 0.4:
            return format_reply(self._said("click" if element is None else action, dice.choice(elements), word, dice))
        if self.level > 2 and slip < 0.6:
            other = "click" if action == "type" else "type"
            return format_reply(self._said(other, element, word or str(dice.randint(10, 99)), dice))
        if word and slip < 0.75:
            return format_reply(self._said(action, element, word[::-1], dice))
        x, y = element[2] + dice.choice((-2, 5)), element[3] + dice.choice((-2, 1, 6))
        return format_reply(f"{action} {max(0, x)} {max(0, y)}{' ' * bool(word)}{word}")

    def judge(self, problem: Page, said: str) -> str:
        elements, action, label, word, _ = problem
        done, element = read(said), self.wanted(problem)
        if done is None:
            return f"{said[:40]!r} is no action; write click x y, type x y WORD, or scroll down"
        if done[0] != action or (action == "type" and done[3] != word):
            return f"the action is {self.answer(problem)}, not {said[:40]!r}"
        if element is not None and not inside(element, done[1], done[2]):
            return f"the place {done[1]} {done[2]} is not in {label}"
        return ""
