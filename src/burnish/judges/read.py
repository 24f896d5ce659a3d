"""What a judge's answer says. Every reader returns None for an answer that it cannot read: a named case, never a guess.

The last matching line counts: a judge may quote the reply that it judges, and a verdict in there is not the judge's.
"""

from __future__ import annotations

import re

LONGEST = 20_000  # characters at the end of an answer that are read
_SCORE = re.compile(
    r"^[\W_]*(?:final\s+)?(?:score|rating)[\W_]*:[\s*_\[(]*(-?\d{1,6}(?:\.\d{1,6})?)\b(.*)$", re.I | re.M
)
_SCORES = re.compile(r"^[\W_]*(?:final\s+)?(?:scores|ratings)\b[^:\n]{0,40}:\s*(.+)$", re.I | re.M)
_VERDICT = re.compile(r"^[\W_]*(?:final\s+)?verdict[\W_]*:[\s*_\[(]*([+-]?\d)\b", re.I | re.M)
_FIRST = re.compile(r"^[\W_]*first\s+error[\W_]*:[\s*_\[(]*(-?\d{1,4})\b", re.I | re.M)
_BOXED = re.compile(r"\\boxed\{\s*(-?\d{1,4})\s*\}")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_LETTER = re.compile(r"\b([AB])\b")
_WEIGHTED = re.compile(r"^\s*[-*]?\s*(\d{1,3})\s*\|\s*(\S.*?)\s*$", re.M)
_DASHED = re.compile(r"^\s*(?:[-*]|\d{1,2}[.)])\s+(\S.*?)\s*$", re.M)


def score(text: str, low: float, high: float) -> float | None:
    """The number of the last line `Score: N`; None without one, or where it is outside [low, high].

    `Score: 7/10` is 7. All digits are read: 10 is not 1 (a known defect of a published data set).
    """
    lines = list(_SCORE.finditer(text[-LONGEST:]))
    if not lines:
        return None
    value = float(lines[-1][1])
    return value if low <= value <= high else None


def scores(text: str, count: int, low: float, high: float) -> list[float] | None:
    """The numbers of the last line `Scores: N1, N2, ...`; None where they are not `count` numbers in [low, high]."""
    lines = list(_SCORES.finditer(text[-LONGEST:]))
    if not lines:
        return None
    values = [float(number) for number in _NUMBER.findall(lines[-1][1][:1000])]
    return values if len(values) == count and all(low <= value <= high for value in values) else None


def brief_scores(text: str, count: int, low: float, high: float) -> list[float] | None:
    """As `scores`, or the numbers that the whole answer consists of, for models that answer with numbers alone."""
    listed = scores(text, count, low, high)
    if listed is not None:
        return listed
    bare = text.strip()
    if not re.fullmatch(r"\d{1,3}(?:[,\s]+\d{1,3}){0,63}\.?", bare):
        return None
    values = [float(number) for number in _NUMBER.findall(bare)]
    return values if len(values) == count and all(low <= value <= high for value in values) else None


def graded(text: str) -> int | None:
    """-3 ... 3 without 0 of the last line `Verdict: N`, or of an answer that is the number alone; else None."""
    lines = list(_VERDICT.finditer(text[-LONGEST:]))
    verdict = lines[-1][1] if lines else text.strip().rstrip(".")
    if not re.fullmatch(r"[+-]?[1-3]", verdict):
        return None
    return int(verdict)


def first_error(text: str, count: int) -> int | None:
    """The number of the last line `First error: N`, or of the last \\boxed{N}: -1 to count - 1; None otherwise."""
    said = _FIRST.findall(text[-LONGEST:]) or _BOXED.findall(text[-LONGEST:])
    return int(said[-1]) if said and -1 <= int(said[-1]) < count else None


def letter(text: str) -> str | None:
    """A or B: the last one that stands alone; None without one."""
    letters = _LETTER.findall(text[-LONGEST:])
    return letters[-1] if letters else None


def weighted_lines(text: str, high: int, most: int) -> list[tuple[int, str]]:
    """(weight, words) of lines `WEIGHT | words` with a weight of at most `high`, the first `most` of them."""
    weighted = [(int(weight), words) for weight, words in _WEIGHTED.findall(text[-LONGEST:]) if int(weight) <= high]
    return weighted[:most]


def dashed_lines(text: str, most: int) -> list[str]:
    """The words of lines that begin with a dash or a number, the first `most` of them."""
    return _DASHED.findall(text[-LONGEST:])[:most]


def numbered_severities(text: str, count: int, worst: int) -> list[tuple[int, int]]:
    """(place, severity) of lines `NUMBER | SEVERITY`, for numbers 1 to count; the last line of a number counts."""
    severities = {
        int(n) - 1: int(s) for n, s in re.findall(r"^\s*(\d{1,3})[.)]?\s*\|\s*(\d{1,2})\b", text[-LONGEST:], re.M)
    }
    return [(place, severities[place]) for place in range(count) if place in severities and severities[place] <= worst]
