"""`draw`: draw what a caption says, as an 8 x 8 picture of colour codes, row by row."""

from __future__ import annotations

import random

from burnish.tasks.codes.code import read, written
from burnish.tasks.codes.frames import near
from burnish.tasks.family import Family
from burnish.verifiers.answer_line import format_reply

SIDE = 8
GROUND = 0
COLOURS = {"red": 1, "green": 2, "blue": 3}
Caption = tuple[int, str, int]  # how many, colour, a number that tells equal captions apart


def blobs(cells: list[int], colour: int) -> int:
    """How many connected regions of a colour an 8 x 8 picture has."""
    left, count = {at for at, one in enumerate(cells) if one == colour}, 0
    while left:
        count += 1
        queue = [left.pop()]
        while queue:
            for other in near(SIDE, queue.pop()):
                if other in left:
                    left.discard(other)
                    queue.append(other)
    return count


class Draw(Family):
    """1, 1-2, 1-3 or 1-4 blobs of a colour by level, and nothing else on the ground <c0>."""

    name = "draw"
    summary = "draw blobs of a colour as 8 x 8 codes"

    def draw(self, dice: random.Random) -> Caption:
        return dice.randint(1, self.level), dice.choice([*COLOURS]), dice.randrange(1 << 20)

    def identity(self, problem: Caption) -> str:
        return " ".join(map(str, problem))

    def ask(self, problem: Caption) -> str:
        return f"Draw {problem[0]} {problem[1]}."

    def drawn(self, count: int, colour: int, dice: random.Random) -> list[int]:
        """A picture with blobs of 2 x 2, 1 x 3 or 2 x 1 cells that do not touch."""
        while True:
            cells = [GROUND] * (SIDE * SIDE)
            for _ in range(count):
                high, wide = dice.choice(((2, 2), (2, 2), (1, 3), (2, 1)))
                y, x = dice.randint(0, SIDE - high), dice.randint(0, SIDE - wide)
                for at in range(high * wide):
                    cells[(y + at // wide) * SIDE + x + at % wide] = colour
            if blobs(cells, colour) == count:
                return cells

    def answer(self, problem: Caption) -> str:
        return written("c", self.drawn(problem[0], COLOURS[problem[1]], random.Random(problem[2])))

    def solve(self, problem: Caption, dice: random.Random) -> str:
        return format_reply(written("c", self.drawn(problem[0], COLOURS[problem[1]], dice)))

    def blunder(self, problem: Caption, dice: random.Random) -> str:
        """Another number, another colour, or a speck."""
        count, colour, slip = problem[0], COLOURS[problem[1]], dice.randrange(3)
        if slip == 0:
            cells = self.drawn(max(1, count + dice.choice((-1, 1))), colour, dice)
        elif slip == 1:
            cells = self.drawn(count, dice.choice([*COLOURS.values()]), dice)
        else:
            cells = self.drawn(count, colour, dice)
            cells[dice.randrange(SIDE * SIDE)] = dice.choice([*COLOURS.values()])
        return format_reply(written("c", cells))

    def judge(self, problem: Caption, said: str) -> str:
        cells, colour = read("c", said), COLOURS[problem[1]]
        if cells is None or len(cells) != SIDE * SIDE:
            return f"a picture is {SIDE * SIDE} codes such as <c0>, not {len(cells or ())}"
        if any(cell not in (GROUND, colour) for cell in cells):
            return f"it has other colours than {problem[1]}"
        found = blobs(cells, colour)
        return "" if found == problem[0] else f"it has {found} blobs, not {problem[0]}"
