"""`sprites`: what happens in a clip whose frames are pictures: where a sprite goes, when it turns or is there."""

from __future__ import annotations

import random

from burnish.media.drawing import ACROSS, BOARD, COLOURS, KINDS, Pixels, blank, put_on_board
from burnish.tasks.pictures.family import PictureFamily
from burnish.verifiers.answer_line import format_reply
from burnish.verifiers.overlap import hull_overlap

MOVES = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}
FRAMES = {1: 4, 2: 4, 3: 6, 4: 6}
# kind, colour and cell of the first frame of each sprite, its direction before and after, and the frames it is in
Sprite = tuple[str, str, int, str, str, tuple[int, int]]
Clip = tuple[tuple[Sprite, ...], int, int]  # sprites (the first is asked about), frame of the turn, grey


def cell_at(sprite: Sprite, frame: int, turn: int) -> int:
    """Where a sprite is in a frame, counted from 1. Sides are joined: it leaves on the left and enters on the right."""
    _, _, cell, before, after, _ = sprite
    y, x = divmod(cell, ACROSS)
    for step in range(2, frame + 1):
        dy, dx = MOVES[before if step < turn else after]
        y, x = (y + dy) % ACROSS, (x + dx) % ACROSS
    return y * ACROSS + x


class Sprites(PictureFamily):
    """Level 1: which way one sprite goes in 4 frames. 2: which way one of two goes. 3: the frame of 6 in which it has
    turned. 4: the first and the last frame of 6 in which it is there; the score is the temporal IoU.
    """

    name = "sprites"
    summary = "tell what happens in a clip of 4 or 6 pictures, for models that see"

    def draw(self, dice: random.Random) -> Clip:
        frames, names = FRAMES[self.level], [(kind, colour) for kind in KINDS for colour in COLOURS]
        turn = dice.randint(3, frames - 1) if self.level == 3 else frames + 1
        sprites: list[Sprite] = []
        for kind, colour in dice.sample(names, 1 if self.level == 1 else 2):
            before = dice.choice([*MOVES])
            flat = before in ("left", "right")
            after = dice.choice(("up", "down") if flat else ("left", "right")) if self.level == 3 else before
            first = dice.randint(1, frames - 2) if self.level == 4 and not sprites else 1
            last = dice.randint(first + 1, frames) if self.level == 4 and not sprites else frames
            sprites.append((kind, colour, dice.randrange(ACROSS * ACROSS), before, after, (first, last)))
        return tuple(sprites), turn, dice.randrange(150, 250)

    def identity(self, problem: Clip) -> str:
        return " ".join(map(str, problem))

    def pictures(self, problem: Clip) -> list[Pixels]:
        sprites, turn, grey = problem
        shown = []
        for frame in range(1, FRAMES[self.level] + 1):
            pixels = blank(grey, BOARD)
            for sprite in reversed(sprites):
                if sprite[5][0] <= frame <= sprite[5][1]:
                    put_on_board(pixels, sprite[0], cell_at(sprite, frame, turn), COLOURS[sprite[1]])
            shown.append(pixels)
        return shown

    def question(self, problem: Clip) -> str:
        kind, colour = problem[0][0][:2]
        if self.level < 3:
            return f"Which way does the {colour} {kind} go?"
        return f"When does the {colour} {kind} turn?" if self.level == 3 else f"When is the {colour} {kind} there?"

    def answer(self, problem: Clip) -> str:
        sprites, turn, _ = problem
        if self.level == 3:
            return str(turn)
        return " ".join(map(str, sprites[0][5])) if self.level == 4 else sprites[0][3]

    def solve(self, problem: Clip, dice: random.Random) -> str:
        return format_reply(self.answer(problem))

    def blunder(self, problem: Clip, dice: random.Random) -> str:
        """Another direction, often that of the other sprite or the opposite one; or off by a frame."""
        sprites, turn, _ = problem
        if self.level == 3:
            return format_reply(str(turn + dice.choice((-1, 1))))
        if self.level == 4:
            first, last = sprites[0][5]
            first, last = max(1, first + dice.randint(-1, 1)), min(6, last + dice.randint(-1, 1))
            return format_reply(f"{min(first, last)} {max(first, last)}")
        return format_reply(dice.choice([*MOVES, *(one[3] for one in sprites[1:])]))

    def credit(self, problem: Clip, said: str) -> float:
        if self.level < 4:
            return super().credit(problem, said)
        read = said.split()
        if len(read) != 2 or not all(one.isdecimal() and len(one) < 3 for one in read):
            return 0.0
        first, last = map(int, read)
        begin, end = problem[0][0][5]
        return hull_overlap((first - 1, last), (begin - 1, end)) if first <= last else 0.0

    def judge(self, problem: Clip, said: str) -> str:
        right = self.answer(problem)
        return "" if said == right else f"the answer is {right}, not {said[:40]!r}"
