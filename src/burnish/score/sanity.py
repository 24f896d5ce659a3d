"""A price on replies that went astray: cut off, or saying one thing over and over."""

from __future__ import annotations

from collections import Counter

from torch import Tensor

from burnish.nouns import Group, Trace
from burnish.parts import Part, per_trace, supplies
from burnish.step import Step


def repeats(tokens: Tensor, n: int) -> int:
    """How often the most frequent n tokens in a row occur."""
    found = tokens.tolist()
    grams = Counter(tuple(found[i : i + n]) for i in range(len(found) - n + 1))
    return max(grams.values(), default=0)


@supplies("score:sane")
def price_astray(price: float, *, n: int, times: int, score: str = "reward", author: str = "policy") -> Part:
    """scores["sane"] = r - price where the reply was cut off, or some n tokens in a row occur more than `times` times."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        astray = trace.note.get("stopped") == "length" or repeats(trace.tokens[trace.by(author)], n) > times
        trace.scores["sane"] = trace.scores[score] - (price if astray else 0.0)
        step.notes.add("astray", astray)

    return per_trace(
        write,
        name=f"price_astray({price:g})",
        reads=frozenset({f"score:{score}", f"tokens:{author}"}),
        writes=frozenset({"score:sane"}),
    )
