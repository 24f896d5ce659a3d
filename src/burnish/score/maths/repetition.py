"""How often a text repeats itself, by n-grams."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence


def ngrams(items: Sequence[Hashable], n: int) -> list[tuple[Hashable, ...]]:
    """All n-grams in order; none where there are fewer than n items."""
    return [tuple(items[i : i + n]) for i in range(len(items) - n + 1)]


def repeated_share(items: Sequence[Hashable], n: int) -> float:
    """1 - distinct / all n-grams; 0 where there are fewer than n items (arXiv 2502.03373, as coded).

    a b a b a b with n = 2 has 5 bigrams, 2 of them distinct: 0.6.
    """
    grams = ngrams(items, n)
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def in_repeated(items: Sequence[Hashable], n: int) -> list[bool]:
    """Which items are part of an n-gram that occurred before: all n items of the later occurrence."""
    seen: set[tuple[Hashable, ...]] = set()
    marked = [False] * len(items)
    for i, gram in enumerate(ngrams(items, n)):
        if gram in seen:
            marked[i : i + n] = [True] * n
        seen.add(gram)
    return marked


class References:
    """Texts to compare others with by BLEU: the largest count of each n-gram in one of them, for 1- to n-grams."""

    def __init__(self, texts: Sequence[Sequence[Hashable]], n: int) -> None:
        self.lengths = sorted({len(text) for text in texts})
        self.most: list[Counter[tuple[Hashable, ...]]] = [Counter() for _ in range(n)]
        for text in texts:
            for k, most in enumerate(self.most, 1):
                most |= Counter(ngrams(text, k))

    def bleu(self, candidate: Sequence[Hashable], n: int) -> float:
        """BLEU-n: the geometric mean of the clipped precisions of 1- to n-grams, times the brevity penalty.

        A precision without a match counts as 0.1 / (number of n-grams), the smoothing "method 1" of NLTK, which the
        code of arXiv 2402.19464 uses; without a common word, or with fewer than n words, it is 0.
        """
        if len(candidate) < n or not self.lengths:
            return 0.0
        product = 1.0
        for k, most in enumerate(self.most[:n], 1):
            grams = Counter(ngrams(candidate, k))
            matched = sum(min(count, most[gram]) for gram, count in grams.items())
            if k == 1 and not matched:
                return 0.0
            product *= (matched or 0.1) / sum(grams.values())
        closest = min((abs(length - len(candidate)), length) for length in self.lengths)[1]
        brevity = 1.0 if len(candidate) >= closest else math.exp(1 - closest / len(candidate))
        return float(brevity * product ** (1 / n))


def bleu(candidate: Sequence[Hashable], references: Sequence[Sequence[Hashable]], n: int) -> float:
    """BLEU-n of a text against references."""
    return References(references, n).bleu(candidate, n)
