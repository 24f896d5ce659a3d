"""Only what the verifier accepts."""

from __future__ import annotations

from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group, Trace


def keep_verified(most: int, *, threshold: float = 0.5, score: str = "reward", author: str = "policy") -> Part:
    """The different replies that score more than the threshold, at most `most` of a group, in the order of sampling.

    Two replies are the same where the author wrote the same tokens. Groups left with none are dropped.
    """
    if most < 1:
        raise ValueError(f"at most {most} replies of each task would be kept; keep at least 1")

    def call(groups: list[Group], step: Step) -> list[Group]:
        before = sum(len(group.traces) for group in groups)
        for group in groups:
            different: dict[tuple[int, ...], Trace] = {}
            for trace in group.traces:
                if trace.scores[score] > threshold:
                    different.setdefault(_said(trace, author), trace)
            group.traces = list(different.values())[:most]
        kept = [group for group in groups if group.traces]
        step.notes.add("dropped/unverified_or_twice", before - sum(len(group.traces) for group in kept), before)
        return kept

    return Part(
        name=f"keep_verified({most})",
        call=call,
        reads=frozenset({f"score:{score}", f"tokens:{author}"}),
        updates=frozenset({f"tokens:{author}"}),
    )


def _said(trace: Trace, author: str) -> tuple[int, ...]:
    return tuple(trace.tokens[trace.by(author)].tolist())
