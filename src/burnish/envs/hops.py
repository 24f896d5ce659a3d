"""Facts in chains: the world behind the tasks `passages` and `search`. A question follows one to three facts.

Every problem has its own small corpus: the facts of its chain, and distractors that name other people, or the same
person in another relation.
"""

from __future__ import annotations

import math
import random
import string
from collections import Counter
from dataclasses import dataclass

from burnish.verifiers.similarity import words

_RELATIONS = ("teacher", "doctor", "neighbour", "partner", "sister", "boss")
_NAMES = (
    "Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gia", "Hugo", "Ida", "Jon", "Kim", "Leo", "Mia", "Ned", "Olga",
    "Pia", "Quin", "Raj", "Sue", "Tim", "Una", "Vic", "Wim", "Xena", "Yan", "Zoe", "Abel", "Bea", "Carl", "Dora",
    "Emil", "Faye", "Gus", "Hana", "Igor", "June", "Karl", "Lena",
)  # fmt: skip
SHAPE = {1: (1, 3), 2: (2, 4), 3: (2, 8), 4: (3, 12)}  # level -> facts of a question, distractors

Fact = tuple[str, str, str]  # (person, relation, person)


@dataclass(frozen=True)
class Question:
    """A question with the facts that answer it, in order, and the distractors.

    plain: the one-letter world of level 1, written as the task `path` is, which the embedded model knows
    """

    facts: tuple[Fact, ...]
    distractors: tuple[Fact, ...]
    plain: bool = False

    @property
    def answer(self) -> str:
        return self.facts[-1][2]

    @property
    def text(self) -> str:
        """The question in words."""
        start = self.facts[0][0]
        if self.plain:
            return f"Path {start}"
        asked = start
        for _, relation, _ in self.facts:
            asked = f"the {relation} of {asked}"
        return f"Who is {asked}?"

    def passage(self, fact: Fact) -> str:
        """A fact in words."""
        person, relation, other = fact
        return f"{person}-{other}" if self.plain else f"The {relation} of {person} is {other}."


def draw_question(dice: random.Random, level: int) -> Question:
    """A question of a level: a chain of different people, and facts that do not answer it."""
    hops, many = SHAPE[level]
    plain = level == 1
    people = dice.sample(string.ascii_lowercase if plain else _NAMES, hops + 1 + 2 * many)
    relations = ["to"] * hops if plain else dice.sample(_RELATIONS, hops)
    chain = people[: hops + 1]
    facts = tuple((chain[i], relations[i], chain[i + 1]) for i in range(hops))
    spare = iter(people[hops + 1 :])
    distractors: list[Fact] = []
    for i in range(many):
        if not plain and i % 2:  # a person of the chain, in a relation that is not asked for
            used = [relation for person, relation, _ in (*facts, *distractors) if person == chain[i % hops]]
            others = [one for one in _RELATIONS if one not in used]
            if others:
                distractors.append((chain[i % hops], dice.choice(others), next(spare)))
                continue
        distractors.append((next(spare), "to" if plain else dice.choice(_RELATIONS), next(spare)))
    return Question(facts, tuple(distractors), plain)


def retrieve(query: str, passages: list[str], top: int) -> list[int]:
    """The numbers of the `top` passages that share most with a query, best first; none that shares no word.

    score = sum over the query's different words of log(1 + N / n_w), n_w the passages that have the word w
    """
    texts = [set(words(passage)) for passage in passages]
    have = Counter(word for text in texts for word in text)
    asked = set(words(query))
    scores = [sum(math.log(1 + len(texts) / have[word]) for word in asked & text) for text in texts]
    order = sorted(range(len(texts)), key=lambda i: (-scores[i], i))
    return [i for i in order[:top] if scores[i] > 0]
