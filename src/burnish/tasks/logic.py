"""`logic`: knights and knaves. Each speaker always tells the truth or always lies; find the liars from their claims."""

from __future__ import annotations

import random
from itertools import chain, combinations

from burnish.tasks.family import Family
from burnish.verifiers.answer_line import format_reply

Claim = tuple[str, ...]  # ("lies", x), ("honest", x), ("or", x, y) one of them lies at least, ("and", x, y) both lie
Puzzle = tuple[tuple[str, Claim], ...]  # who says what
_NAMES = "ABCDEFGH"
_SHAPE = {1: (2, 0.5), 2: (3, 0.4), 3: (3, 0.9), 4: (4, 0.6)}  # speakers, share of claims about two people


def _holds(claim: Claim, liars: frozenset[str]) -> bool:
    lying = [name in liars for name in claim[1:]]
    return {"lies": lying[0], "honest": not lying[0], "or": any(lying), "and": all(lying)}[claim[0]]


def _fits(speaker: str, claim: Claim, liars: frozenset[str]) -> bool:
    """An honest speaker's claim holds, a liar's does not."""
    return _holds(claim, liars) != (speaker in liars)


def _worlds(puzzle: Puzzle) -> list[frozenset[str]]:
    """Every possible set of liars."""
    names = [speaker for speaker, _ in puzzle]
    return [frozenset(some) for some in chain.from_iterable(combinations(names, n) for n in range(len(names) + 1))]


def _solutions(puzzle: Puzzle) -> list[frozenset[str]]:
    return [liars for liars in _worlds(puzzle) if all(_fits(who, claim, liars) for who, claim in puzzle)]


def _spell(claim: Claim) -> str:
    kind, names = claim[0], claim[1:]
    if kind in ("lies", "honest"):
        return f"{names[0]} {kind}"
    return f"{names[0]} {kind} {names[1]} lie{'s' if kind == 'or' else ''}"


def _names(liars: frozenset[str]) -> str:
    return " ".join(sorted(liars)) or "none"


class Logic(Family):
    """Two speakers at level 1, three at 2 and 3 (more claims about two people at once), four at 4."""

    name = "logic"
    summary = "knights and knaves: find who lies"

    def draw(self, dice: random.Random) -> Puzzle:
        many, double = _SHAPE[self.level]
        names = sorted(dice.sample(_NAMES, many))
        while True:
            puzzle = []
            for speaker in names:
                if dice.random() < double:
                    claim = (dice.choice(("or", "and")), *sorted(dice.sample(names, 2)))
                else:
                    claim = (dice.choice(("lies", "honest")), dice.choice([n for n in names if n != speaker]))
                puzzle.append((speaker, claim))
            if len(_solutions(tuple(puzzle))) == 1:
                return tuple(puzzle)

    def identity(self, problem: Puzzle) -> str:
        return ". ".join(f"{speaker}: {_spell(claim)}" for speaker, claim in problem)

    def ask(self, problem: Puzzle) -> str:
        return f"{self.identity(problem)}. Who lies?"

    def answer(self, problem: Puzzle) -> str:
        return _names(_solutions(problem)[0])

    def _try(self, problem: Puzzle, liars: frozenset[str]) -> str:
        """Check one set of liars, speaker by speaker, up to the first contradiction."""
        says = []
        for speaker, claim in problem:
            fits = _fits(speaker, claim, liars)
            says.append(f"{speaker} {'ok' if fits else 'no'}")
            if not fits:
                break
        return f"try {_names(liars)}: {' '.join(says)}"

    def _misses(self, problem: Puzzle, dice: random.Random) -> list[str]:
        """No working, or one set of liars that does not fit."""
        right = _solutions(problem)[0]
        wrong = dice.choice([liars for liars in _worlds(problem) if liars != right])
        return [self._try(problem, wrong)] if dice.random() < 0.4 else []

    def solve(self, problem: Puzzle, dice: random.Random) -> str:
        right = _solutions(problem)[0]
        return format_reply(_names(right), *self._misses(problem, dice), self._try(problem, right))

    def blunder(self, problem: Puzzle, dice: random.Random) -> str:
        """A wrong set of liars accepted, or the right one checked and another one named."""
        misses, right = self._misses(problem, dice), _solutions(problem)[0]
        wrong = dice.choice([liars for liars in _worlds(problem) if liars != right])
        if dice.random() < 0.2:
            return format_reply(_names(wrong), *misses, self._try(problem, right))
        passed = " ".join(f"{speaker} ok" for speaker, _ in problem)
        return format_reply(_names(wrong), *misses, f"try {_names(wrong)}: {passed}")

    def judge(self, problem: Puzzle, said: str) -> str:
        right = self.answer(problem)
        if sorted(said.replace(",", " ").split()) == right.split():
            return ""
        return f"the liars are {right!r}, not {said[:40]!r}"
