"""A penalty for degenerate replies: cut off, or repetitive."""

from __future__ import annotations

from collections import Counter

from torch import Tensor

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace


def repeats(tokens: Tensor, n: int) -> int:
    """The count of the most frequent n-gram of tokens."""
    ids = tokens.tolist()
    grams = Counter(tuple(ids[i : i + n]) for i in range(len(ids) - n + 1))
    return max(grams.values(), default=0)


@supplies("score:sane")
def price_astray(price: float, *, n: int, times: int, score: str = "reward", author: str = "policy") -> Part:
    """scores["sane"] = r - price if the reply was cut off or an n-gram occurs more than `times` times; else r."""

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
