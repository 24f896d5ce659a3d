"""Scores that depend on how long a reply is."""

from __future__ import annotations

from burnish.core.parts import Part, names, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace


def overlong_punishment(length: int, longest: int, buffer: float) -> float:
    """DAPO's soft overlong punishment (arXiv 2503.14476).

    0 up to longest - buffer tokens, then linear to -1 at longest, and -1 beyond.
    """
    over = length - (longest - buffer)
    if over <= 0:
        return 0.0
    return -min(over / buffer, 1.0) if buffer > 0 else -1.0


@supplies("score:shaped")
def punish_overlong(share: float, *, score: str = "reward", author: str | tuple[str, ...] = "policy") -> Part:
    """scores["shaped"] = 2 score - 1 + overlong punishment, with a buffer of share x max_new_tokens.

    A score of 0 or 1 becomes DAPO's -1 or +1. A share of 0 turns the punishment off.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"the overlong buffer is {share} of the longest reply; it must lie between 0 and 1")

    authors = (author,) if isinstance(author, str) else author

    def write(trace: Trace, group: Group, step: Step) -> None:
        length, longest = int(trace.by(*authors).sum()), step.settings.max_new_tokens
        punished = overlong_punishment(length, longest, share * longest)
        trace.scores["shaped"] = 2 * trace.scores[score] - 1 + punished
        step.notes.add("overlong", punished)

    return per_trace(
        write,
        name="punish_overlong",
        reads=frozenset({f"score:{score}"}) | names("tokens", authors),
        writes=frozenset({"score:shaped"}),
    )
