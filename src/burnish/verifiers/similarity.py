"""Similarity of texts, as pure functions: F1 of words, ROUGE, BLEU, edit distance, repetition.

Longest common subsequence and edit distance use the bits of Python integers as rows of their tables, so they take
O(n m / 64) operations of the processor (Hyyro 2004 for the subsequence, Myers 1999 for the distance).
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Hashable, Sequence

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_WORDS = re.compile(r"\w+")
_TOKENS = re.compile(r"\w+|[^\w\s]")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_normalised(text: str) -> str:
    """SQuAD's normal form: lower case, without punctuation, articles and extra spaces.

    A text of which nothing remains ("The", "A") keeps them, so that it does not equal every other such text.
    """
    plain = " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())
    return plain or " ".join(text.lower().split())


def words(text: str) -> list[str]:
    """Lower-case words, without punctuation."""
    return _WORDS.findall(text.lower())


def tokens(text: str) -> list[str]:
    """Lower-case words and single punctuation marks."""
    return _TOKENS.findall(text.lower())


def f_measure(shared: float, candidate: float, right: float, beta: float = 1.0) -> float:
    """(1 + beta^2) P R / (beta^2 P + R) with P = shared / candidate, R = shared / right; 0 where nothing is shared."""
    if shared <= 0:
        return 0.0
    return (1 + beta**2) * shared / (candidate + beta**2 * right)


def bag_f1(candidate: Sequence[Hashable], right: Sequence[Hashable]) -> float:
    """F1 of two multisets; 1 where both are empty."""
    if not candidate and not right:
        return 1.0
    return f_measure(sum((Counter(candidate) & Counter(right)).values()), len(candidate), len(right))


def n_grams(items: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """The n-grams of a sequence with their counts."""
    return Counter(zip(*(items[i:] for i in range(n)), strict=False))


def rouge_n(candidate: Sequence[str], right: Sequence[str], n: int) -> float:
    """ROUGE-N as F1 of the n-grams (Lin 2004)."""
    a, b = n_grams(candidate, n), n_grams(right, n)
    return f_measure(sum((a & b).values()), sum(a.values()), sum(b.values()))


def common_subsequence(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """The length of the longest common subsequence."""
    places: dict[Hashable, int] = {}
    for i, item in enumerate(a):
        places[item] = places.get(item, 0) | 1 << i
    full = (1 << len(a)) - 1
    row = full
    for item in b:
        match = row & places.get(item, 0)
        row = ((row + match) | (row - match)) & full
    return len(a) - row.bit_count()


def rouge_l(candidate: Sequence[str], right: Sequence[str]) -> float:
    """ROUGE-L of whole texts as F1 of the longest common subsequence (Lin 2004)."""
    return f_measure(common_subsequence(candidate, right), len(candidate), len(right))


def bleu(candidate: Sequence[str], references: Sequence[Sequence[str]], n: int = 4) -> float:
    """Sentence BLEU: min(1, e^(1 - r/c)) x the geometric mean of the clipped n-gram precisions of orders 1..n.

    r is the closest reference length, c that of `candidate`. Smoothing "exp": the k-th order without a match counts
    1/2^k matches; orders longer than the text are left out; without a single common word the score is 0. These are the
    defaults of sacrebleu's sentence score.
    """
    logs, halved = [], 1.0
    for order in range(1, n + 1):
        own = n_grams(candidate, order)
        total = sum(own.values())
        if not total:
            break
        most: Counter[tuple[str, ...]] = Counter()
        for reference in references:
            most |= n_grams(reference, order)
        matched = float(sum((own & most).values()))
        if not matched:
            if order == 1:
                return 0.0
            halved /= 2
            matched = halved
        logs.append(math.log(matched / total))
    if not logs:
        return 0.0
    closest = min((len(reference) for reference in references), key=lambda size: (abs(size - len(candidate)), size))
    return min(1.0, math.exp(1 - closest / len(candidate))) * math.exp(sum(logs) / len(logs))


def edit_distance(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """The Levenshtein distance: insertions, deletions and substitutions at cost 1."""
    if not a or not b:
        return len(a) + len(b)
    places: dict[Hashable, int] = {}
    for i, item in enumerate(a):
        places[item] = places.get(item, 0) | 1 << i
    full, last = (1 << len(a)) - 1, 1 << (len(a) - 1)
    up, down, distance = full, 0, len(a)  # bits of the vertical differences +1 and -1
    for item in b:
        match = places.get(item, 0)
        diagonal = (((match & up) + up) ^ up) | match | down
        right_up = down | ~(diagonal | up) & full
        right_down = up & diagonal
        distance += bool(right_up & last) - bool(right_down & last)
        right_up = (right_up << 1 | 1) & full
        up = (right_down << 1 | ~(diagonal | right_up)) & full
        down = right_up & diagonal
    return distance


def edit_similarity(a: Sequence[Hashable], b: Sequence[Hashable]) -> float:
    """1 - distance / longer length; 1 where both are empty."""
    return 1.0 - edit_distance(a, b) / max(len(a), len(b), 1)


def repetition(items: Sequence[str], n: int) -> float:
    """1 - distinct / all n-grams; 0 where there are none."""
    counts = n_grams(items, n)
    total = sum(counts.values())
    return 1.0 - len(counts) / total if total else 0.0
