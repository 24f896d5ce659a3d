"""`matrix`: games of two players in a table: the best reply, a dominant move, or the next move of a repeated game.

Questions about games for training, and moves in play for testing, after arXiv 2506.00577.
"""

from __future__ import annotations

import random

from burnish.tasks.family import Family, Problem
from burnish.verifiers.answer_line import format_reply

_KINDS = {1: "best", 2: "dominant", 3: "play"}
MOVES = ("A", "B")


class Matrix(Family):
    """By level: the best reply to a move (1), the move that is best whatever the other does, or none (2), the next move
    against a player whose last moves are seen (3: it plays what it has played most often).

    A problem is (kind, my pay-offs AA AB BA BB: my move first, the other's moves as a text).
    """

    name = "matrix"
    summary = "best replies, dominant moves and play in games of two moves"
    levels = (1, 2, 3)

    def draw(self, dice: random.Random) -> Problem:
        kind = _KINDS[self.level]
        while True:
            pay = tuple(dice.randint(0, 9) for _ in range(4))
            if pay[0] != pay[2] and pay[1] != pay[3]:  # no ties: every move has one best reply
                break
        if kind == "best":
            return kind, pay, dice.choice(MOVES)
        if kind == "dominant":
            return kind, pay, ""
        mostly = dice.choice(MOVES)
        history = [mostly] * dice.randint(3, 4) + [MOVES[mostly == "A"]] * dice.randint(0, 2)
        dice.shuffle(history)
        return kind, pay, "".join(history)

    def identity(self, problem: Problem) -> str:
        kind, pay, other = problem
        return f"{kind} {' '.join(map(str, pay))} {other}"

    def ask(self, problem: Problem) -> str:
        kind, pay, other = problem
        table = "AA {} AB {} BA {} BB {}".format(*pay)
        if kind == "best":
            return f"{table}. Other {other}. Best?"
        return f"{table}. Dominant?" if kind == "dominant" else f"{table}. Other played {other}. Move?"

    def _reply_to(self, pay: tuple[int, ...], other: str) -> str:
        at = MOVES.index(other)
        return "A" if pay[at] > pay[2 + at] else "B"

    def answer(self, problem: Problem) -> str:
        kind, pay, other = problem
        if kind == "best":
            return self._reply_to(pay, other)
        if kind == "play":
            return self._reply_to(pay, "A" if other.count("A") > other.count("B") else "B")
        against = {self._reply_to(pay, move) for move in MOVES}
        return against.pop() if len(against) == 1 else "none"

    def _compared(self, pay: tuple[int, ...], move: str) -> str:
        at = MOVES.index(move)
        a, b = pay[at], pay[2 + at]
        return f"{move}: A {a} B {b}, {'A' if a > b else 'B'}"

    def solve(self, problem: Problem, dice: random.Random) -> str:
        kind, pay, other = problem
        if kind == "dominant":
            steps = [self._compared(pay, move) for move in MOVES]
        else:
            against = other if kind == "best" else "A" if other.count("A") > other.count("B") else "B"
            steps = [self._compared(pay, against)]
        return format_reply(self.answer(problem), *steps)

    def blunder(self, problem: Problem, dice: random.Random) -> str:
        """The pay-offs of the wrong column, or another answer after the right working."""
        kind, pay, _ = problem
        said = [move for move in (*MOVES, *(["none"] if kind == "dominant" else [])) if move != self.answer(problem)]
        return format_reply(dice.choice(said), self._compared(pay, dice.choice(MOVES)))

    def judge(self, problem: Problem, said: str) -> str:
        right = self.answer(problem)
        return "" if said == right else f"the right move is {right}, not {said[:20]!r}"
