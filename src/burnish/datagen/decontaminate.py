"""Training rows that share n-grams with evaluation prompts: contamination as Tulu 3 measures it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Overlap:
    """What was found of one evaluation set: which training rows match a prompt, and how many prompts are matched."""

    rows: frozenset[int]
    matched: int
    prompts: int

    @property
    def share(self) -> float:
        """The share of the evaluation prompts that some training row matches."""
        return self.matched / self.prompts if self.prompts else 0.0


def words_of(text: str) -> list[str]:
    """The words of a text, in small letters and without punctuation."""
    return _WORD.findall(text.casefold())


class Index:
    """The n-grams of training prompts, to look evaluation prompts up in.

    Tulu 3 (arXiv 2411.15124, section 3.2), n = 8 and share = 0.5: a token of a test prompt matches a training row if
    both have an n-gram in common that contains the token; a prompt overlaps with a row if more than `share` of its
    tokens match that same row.  Here a token is a word in small letters, and a prompt of fewer than n words overlaps
    with a row that contains all of it: the paper says nothing of these.
    """

    def __init__(self, texts: Iterable[str], n: int = 8) -> None:
        self.n, self.rows = n, [words_of(text) for text in texts]
        self._found: dict[int, dict[tuple[str, ...], set[int]]] = {}

    def matching(self, prompt: str, share: float = 0.5) -> set[int]:
        """The rows that overlap with a prompt."""
        words = words_of(prompt)
        if not words:
            return set()
        n = min(self.n, len(words))
        covered: dict[int, set[int]] = defaultdict(set)
        grams = self._grams(n)
        for start in range(len(words) - n + 1):
            for row in grams.get(tuple(words[start : start + n]), ()):
                covered[row].update(range(start, start + n))
        return {row for row, places in covered.items() if len(places) > share * len(words)}

    def overlap(self, prompts: Sequence[str], share: float = 0.5) -> Overlap:
        """The overlap with a whole evaluation set."""
        matches = [self.matching(prompt, share) for prompt in prompts]
        return Overlap(frozenset().union(*matches), sum(map(bool, matches)), len(prompts))

    def _grams(self, n: int) -> dict[tuple[str, ...], set[int]]:
        if n not in self._found:
            grams: dict[tuple[str, ...], set[int]] = defaultdict(set)
            for i, words in enumerate(self.rows):
                for start in range(len(words) - n + 1):
                    grams[tuple(words[start : start + n])].add(i)
            self._found[n] = dict(grams)
        return self._found[n]
