"""`edit`: carry out small edits on a row of letters, one after the other."""

from __future__ import annotations

import random
import string

from burnish.tasks.family import Family
from burnish.tasks.slips import slip
from burnish.verifiers.answer_line import format_reply

Op = tuple[str, ...]  # ("drop", x), ("upper", x), ("double", x), ("first", x), ("turn", x, y)
Edits = tuple[tuple[str, ...], tuple[Op, ...]]  # the letters, the edits in order
_SHAPE = {1: (4, 1), 2: (5, 2), 3: (6, 3), 4: (7, 4)}  # letters, edits
_VERBS = ("drop", "upper", "double", "first", "turn")


def _apply(letters: list[str], op: Op) -> list[str]:
    """The row after one edit; an edit of a missing letter changes nothing."""
    verb, letter = op[0], op[1]
    if letter not in letters:
        return letters
    at = letters.index(letter)
    before, after = letters[:at], letters[at + 1 :]
    if verb == "first":
        return [letter, *before, *after]
    middle = {"drop": [], "upper": [letter.upper()], "double": [letter, letter], "turn": [op[-1]]}[verb]
    return before + middle + after


def _stages(letters: tuple[str, ...], ops: tuple[Op, ...]) -> list[list[str]]:
    """The row after each edit."""
    rows = [list(letters)]
    for op in ops:
        rows.append(_apply(rows[-1], op))
    return rows[1:]


def _spell(op: Op) -> str:
    return f"turn {op[1]} to {op[2]}" if op[0] == "turn" else " ".join(op)


class Edit(Family):
    """5 letters and 2 edits at level 2; one fewer or more of each by level. The edits touch different letters."""

    name = "edit"
    summary = "carry out edits on a row of letters, one after the other"

    def draw(self, dice: random.Random) -> Edits:
        many, edits = _SHAPE[self.level]
        letters = dice.sample(string.ascii_lowercase, many + edits)
        row, spare = letters[:many], letters[many:]
        ops = []
        for target, new in zip(dice.sample(row, edits), spare, strict=True):
            verb = dice.choice(_VERBS)
            ops.append((verb, target, new) if verb == "turn" else (verb, target))
        return tuple(row), tuple(ops)

    def identity(self, problem: Edits) -> str:
        return f"{' '.join(problem[0])}: {', '.join(map(_spell, problem[1]))}"

    def ask(self, problem: Edits) -> str:
        return f"Edit {self.identity(problem)}"

    def answer(self, problem: Edits) -> str:
        return " ".join(_stages(*problem)[-1])

    def _say(self, stages: list[list[str]]) -> str:
        rows = [" ".join(row) for row in stages]
        return format_reply(rows[-1], *rows[:-1])

    def solve(self, problem: Edits, dice: random.Random) -> str:
        return self._say(_stages(*problem))

    def blunder(self, problem: Edits, dice: random.Random) -> str:
        """One edit is forgotten, applied to the wrong letter, replaced by another, or the row is copied wrongly."""
        letters, ops = problem
        at = dice.randrange(len(ops))
        verb, target = ops[at][0], ops[at][1]
        kind = dice.choice(("forget", "letter", "verb", "copy"))
        if kind == "copy":
            rows = _stages(letters, ops[: at + 1])
            rows[-1] = slip(rows[-1], string.ascii_lowercase, dice)
            for op in ops[at + 1 :]:
                rows.append(_apply(rows[-1], op))
            return self._say(rows)
        if kind == "forget":
            wrong: Op = ("upper", "")
        elif kind == "letter":
            wrong = (verb, dice.choice(letters), *ops[at][2:])
        else:
            wrong = (dice.choice(_VERBS[:4]), target)
        return self._say(_stages(letters, (*ops[:at], wrong, *ops[at + 1 :])))

    def judge(self, problem: Edits, said: str) -> str:
        right = self.answer(problem)
        return "" if said.split() == right.split() else f"after the edits the row is {right!r}"
