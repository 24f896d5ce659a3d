"""`shapes`: how many shapes a drawn picture has, of all, of a colour, of a kind, or of both."""

from __future__ import annotations

import random

from burnish.media.drawing import ACROSS, BOARD, COLOURS, KINDS, Pixels, blank, put_on_board
from burnish.tasks.pictures.family import PictureFamily
from burnish.verifiers.answer_line import format_reply

MOST = 5  # shapes in a picture

Shape = tuple[str, str, int]  # kind, colour, cell
Problem = tuple[
    str, str, tuple[Shape, ...], int
]  # the kind and the colour that are asked for ("": any), shades of grey


def drawn(shapes: tuple[Shape, ...], grey: int) -> Pixels:
    """[32, 32, 3]: a picture of these shapes on a grey ground."""
    pixels = blank(grey, BOARD)
    for kind, colour, cell in shapes:
        put_on_board(pixels, kind, cell, COLOURS[colour])
    return pixels


class Shapes(PictureFamily):
    """Up to five shapes in three kinds and colours. Level 1 asks for all of them, 2 for those of a colour, 3 for those
    of a kind, 4 for those of a colour and a kind.
    """

    name = "shapes"
    summary = "count the shapes of a drawn picture, for models that see"

    def draw(self, dice: random.Random) -> Problem:
        kind = dice.choice(KINDS) if self.level in (3, 4) else ""
        colour = dice.choice([*COLOURS]) if self.level in (2, 4) else ""
        cells = dice.sample(range(ACROSS * ACROSS), dice.randint(1, MOST))
        shapes = tuple((dice.choice(KINDS), dice.choice([*COLOURS]), cell) for cell in sorted(cells))
        return kind, colour, shapes, dice.randrange(150, 250)

    def identity(self, problem: Problem) -> str:
        kind, colour, shapes, grey = problem
        return f"{kind} {colour} {grey} " + " ".join(f"{k}{c}{at}" for k, c, at in shapes)

    def pictures(self, problem: Problem) -> list[Pixels]:
        return [drawn(problem[2], problem[3])]

    def question(self, problem: Problem) -> str:
        kind, colour, _, _ = problem
        several = {"": "shapes", "cross": "crosses"}.get(kind, f"{kind}s")
        return f"How many {f'{colour} {several}'.strip()}?"

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

    def judge(self, problem: Problem, said: str) -> str:
        right = self.answer(problem)
        return "" if said == right else f"the answer is {right}, not {said[:40]!r}"
