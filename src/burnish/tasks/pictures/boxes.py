"""`boxes` and `detect`: where the shapes of a picture are.

A box is x1 y1 x2 y2 in units of 4 pixels, from 0 to 16. `boxes` asks for one, `detect` for all shapes of a kind, each
box followed by a confidence from 1 to 9.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from burnish.media.drawing import COLOURS, KINDS, SIDE, UNIT, Pixels, blank, put, shape
from burnish.tasks.pictures.family import PictureFamily
from burnish.verifiers.answer_line import format_reply
from burnish.verifiers.overlap import Box, iou, matched

ACROSS = SIDE // UNIT
LEAST, MOST = 2, 5  # units of a shape's sides
RIGHT = 0.5  # the IoU from which a box is right
Place = tuple[int, int, int, int]
Placed = tuple[str, str, Place]  # kind, colour, box
Scene = tuple[tuple[Placed, ...], int, int]  # shapes, the number of the one that is asked for, grey

_NUMBERS = re.compile(r"\s*\d{1,2}(?:\s+\d{1,2})*\s*")


def numbers_of(said: str, count: int) -> tuple[int, ...] | None:
    """Exactly `count` whole numbers of at most two digits; None if the text is anything else."""
    if not _NUMBERS.fullmatch(said):
        return None
    found = tuple(map(int, said.split()))
    return found if len(found) == count else None


def placed(dice: random.Random, names: list[tuple[str, str]]) -> tuple[Placed, ...]:
    """Shapes of these kinds and colours in boxes that do not touch."""
    while True:
        boxes: list[Place] = []
        for _ in range(40 * len(names)):
            if len(boxes) == len(names):
                return tuple((kind, colour, box) for (kind, colour), box in zip(names, boxes, strict=True))
            height, width = dice.randint(LEAST, MOST), dice.randint(LEAST, MOST)
            y, x = dice.randint(0, ACROSS - height), dice.randint(0, ACROSS - width)
            box = (x, y, x + width, y + height)
            apart = (x >= c or box[2] <= a or y >= d or box[3] <= b for a, b, c, d in boxes)
            if all(apart):
                boxes.append(box)


def painted(shapes: tuple[Placed, ...], grey: int) -> Pixels:
    """The picture of a scene."""
    pixels = blank(grey)
    for kind, colour, (x1, y1, x2, y2) in shapes:
        put(pixels, shape(kind, (y2 - y1) * UNIT, (x2 - x1) * UNIT), y1 * UNIT, x1 * UNIT, COLOURS[colour])
    return pixels


def shifted(box: Place, dice: random.Random) -> Place:
    """A box that is off: moved, or of another size, by up to three units on a side."""
    x1, y1, x2, y2 = (min(ACROSS, max(0, side + dice.randint(-3, 3))) for side in box)
    return (min(x1, x2 - 1), min(y1, y2 - 1), max(x2, 1), max(y2, 1)) if x2 and y2 else box


def _written(box: Sequence[int]) -> str:
    return " ".join(map(str, box))


class Boxes(PictureFamily):
    """The box of one of 1, 2, 4 or 6 shapes, named by colour and kind."""

    name = "boxes"
    summary = "find a shape of a drawn picture and give its box, for models that see"

    def draw(self, dice: random.Random) -> Scene:
        names = [(kind, colour) for kind in KINDS for colour in COLOURS]
        shapes = placed(dice, dice.sample(names, (1, 2, 4, 6)[self.level - 1]))
        return shapes, 0, dice.randrange(150, 250)

    def identity(self, problem: Scene) -> str:
        shapes, at, grey = problem
        return f"{at} {grey} " + " ".join(f"{kind}{colour}{_written(box)}" for kind, colour, box in shapes)

    def pictures(self, problem: Scene) -> list[Pixels]:
        return [painted(problem[0], problem[2])]

    def question(self, problem: Scene) -> str:
        kind, colour, _ = problem[0][problem[1]]
        return f"Where is the {colour} {kind}?"

    def answer(self, problem: Scene) -> str:
        return _written(problem[0][problem[1]][2])

    def solve(self, problem: Scene, dice: random.Random) -> str:
        return format_reply(self.answer(problem))

    def blunder(self, problem: Scene, dice: random.Random) -> str:
        """A shifted box, or that of another shape."""
        shapes, at, _ = problem
        others = [box for i, (_, _, box) in enumerate(shapes) if i != at]
        if others and dice.random() < 0.4:
            return format_reply(_written(dice.choice(others)))
        return format_reply(_written(shifted(shapes[at][2], dice)))

    def credit(self, problem: Scene, said: str) -> float:
        """The IoU of the box."""
        box = numbers_of(said, 4)
        return 0.0 if box is None else iou(box, tuple(problem[0][problem[1]][2]))

    def judge(self, problem: Scene, said: str) -> str:
        if numbers_of(said, 4) is None:
            return f"a box is four numbers, not {said[:40]!r}"
        found = self.credit(problem, said)
        return "" if found >= RIGHT else f"the box is {self.answer(problem)}; IoU {found:.2f} is below {RIGHT}"


class Detect(PictureFamily):
    """All shapes of a kind: 1, up to 2, 3 or 4 of them, among up to two of another kind."""

    name = "detect"
    summary = "find all shapes of a kind in a drawn picture, for models that see"

    def draw(self, dice: random.Random) -> Scene:
        wanted, other = dice.sample(KINDS, 2)
        colours = [*COLOURS]
        names = [(wanted, dice.choice(colours)) for _ in range(dice.randint(max(1, self.level - 2), self.level))]
        names += [(other, dice.choice(colours)) for _ in range(dice.randint(0, 2))]
        return placed(dice, names), 0, dice.randrange(150, 250)

    identity = Boxes.identity
    pictures = Boxes.pictures

    def question(self, problem: Scene) -> str:
        kind = problem[0][problem[1]][0]
        return f"Find all {'crosses' if kind == 'cross' else kind + 's'}."

    def wanted(self, problem: Scene) -> list[Place]:
        """The boxes that are asked for, from left to right."""
        shapes, at, _ = problem
        return sorted((a, b, c, d) for kind, _, (a, b, c, d) in shapes if kind == shapes[at][0])

    def answer(self, problem: Scene) -> str:
        return ", ".join(f"{_written(box)} 9" for box in self.wanted(problem))

    def solve(self, problem: Scene, dice: random.Random) -> str:
        return format_reply(", ".join(f"{_written(box)} {dice.randint(5, 9)}" for box in self.wanted(problem)))

    def blunder(self, problem: Scene, dice: random.Random) -> str:
        """Boxes shifted, doubled, left out or of another kind; those that are wrong are less certain."""
        said = [(box, dice.randint(4, 9)) for box in self.wanted(problem)]
        at, slip = dice.randrange(len(said)), dice.randrange(4)
        others = [box for kind, _, box in problem[0] if kind != problem[0][problem[1]][0]]
        if slip == 0 and len(said) > 1:
            del said[at]
        elif slip == 1:
            said.insert(at, said[at])
        elif slip == 2 and others:
            said = sorted([*said, (dice.choice(others), dice.randint(1, 7))])
        else:
            said[at] = shifted(said[at][0], dice), dice.randint(1, 7)
        return format_reply(", ".join(f"{_written(box)} {sure}" for box, sure in said))

    def found(self, said: str) -> list[tuple[Box, float]] | None:
        """The boxes of an answer with their confidences; None if it is anything else."""
        read = [numbers_of(one, 5) for one in said.split(",")[:16]]
        return None if None in read else [(one[:4], min(one[4], 10) / 10) for one in read if one is not None]

    def credit(self, problem: Scene, said: str) -> float:
        """Sum of the IoU of matched boxes, those below 0.5 left out, over the larger number of boxes."""
        boxes = self.found(said)
        if boxes is None:
            return 0.0
        wanted = self.wanted(problem)
        pairs = matched(sorted(boxes, key=lambda one: -one[1]), wanted, least=RIGHT)
        return sum(overlap for _, _, overlap in pairs) / max(len(wanted), len(boxes))

    def judge(self, problem: Scene, said: str) -> str:
        boxes = self.found(said)
        if boxes is None:
            return f"boxes are five numbers each, with commas between them, not {said[:40]!r}"
        wanted = self.wanted(problem)
        pairs = matched(sorted(boxes, key=lambda one: -one[1]), wanted, least=RIGHT)
        if len(pairs) == len(wanted) == len(boxes):
            return ""
        return f"{len(pairs)} of {len(wanted)} boxes are found, by {len(boxes)} that are given"
