"""Axioms of preference (arXiv 2312.02206): which of two kinds of reply to a question is better, and by which axiom."""

from __future__ import annotations

from collections.abc import Collection, Sequence

KINDS = ("useful", "useless", "elsewhere", "false", "grounded", "misgrounded", "combined")
AXIOMS: dict[str, tuple[str, str]] = {  # axiom -> (better, worse)
    "usefulness": ("useful", "useless"),  # more votes, or preferred
    "relevance": ("useful", "elsewhere"),  # the question's own answer over one to another question
    "truthfulness": ("useful", "false"),  # true over plausible but false
    "groundedness": ("grounded", "useful"),  # with evidence over without
    "relevant_grounding": ("grounded", "misgrounded"),  # with its own evidence over another question's
    "combination": ("combined", "useful"),  # several answers joined over one of them
}


def kind_among(tags: Collection[str]) -> str:
    """The kind of a reply with these tags."""
    return next(kind for kind in KINDS if kind in tags)


def pairs_by_axiom(kinds: Sequence[str]) -> list[tuple[int, int, str]]:
    """All (better, worse, axiom) among replies of these kinds, as indices."""
    return [
        (a, b, axiom)
        for axiom, (better, worse) in AXIOMS.items()
        for a, first in enumerate(kinds)
        for b, second in enumerate(kinds)
        if first == better and second == worse
    ]
