"""Scores that depend on the length of a reply, and on how early it is correct."""

from __future__ import annotations

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace


def reply_length(trace: Trace, author: str = "policy") -> int:
    """Number of tokens written by the author."""
    return int(trace.by(author).sum())


def right_replies(group: Group) -> int:
    """Number of correct replies of a group."""
    return sum(trace.scores["correct"] > 0 for trace in group.traces)


@supplies("score:within")
def within(share: float, *, author: str = "policy") -> Part:
    """scores["within"] = 1 if the reply has at most share x max_new_tokens tokens, else 0."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        limit = share * step.settings.max_new_tokens
        trace.scores["within"] = float(reply_length(trace, author) <= limit)

    return per_trace(
        write,
        name=f"within({share:g})",
        reads=frozenset({f"tokens:{author}"}),
        writes=frozenset({"score:within"}),
    )


@supplies("score:effort")
def effort(price: float, *, score: str = "reward", author: str = "policy") -> Part:
    """scores["effort"] = r - price L / |y|, L = max_new_tokens: short replies pay more (RLSP, arXiv 2502.06773)."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        length = max(1, reply_length(trace, author))
        trace.scores["effort"] = trace.scores[score] - price * step.settings.max_new_tokens / length

    return per_trace(
        write,
        name=f"effort({price:g})",
        reads=frozenset({f"score:{score}", f"tokens:{author}"}),
        writes=frozenset({"score:effort"}),
    )


@supplies("score:concise")
def brevity_once_right(*, author: str = "policy") -> Part:
    """scores["concise"] = 1 - |y| / L if all replies to the prompt are correct, L = max_new_tokens; else the reward.

    Length counts only for solved prompts (ConciseR, arXiv 2505.21178).
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        sure = 0
        for group in groups:
            all_right = right_replies(group) == len(group.traces)
            sure += all_right
            for trace in group.traces:
                spare = 1 - reply_length(trace, author) / step.settings.max_new_tokens
                trace.scores["concise"] = spare if all_right else trace.scores["reward"]
        step.notes.add("all_right_groups", sure, len(groups))
        return groups

    return Part(
        name="brevity_once_right",
        call=call,
        reads=frozenset({"score:reward", f"tokens:{author}"}),
        writes=frozenset({"score:concise"}),
    )


@supplies("score:early")
def halved_after_each_right() -> Part:
    """scores["early"] = 1 / 2^(k - 1) for the k-th correct reply of a group in its order, 0 for a wrong one.

    S-GRPO (arXiv 2505.07686): the order is from the earliest exit to the complete reasoning, so early exits score more.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            value = 1.0
            for trace in group.traces:
                right = trace.scores["correct"] > 0
                trace.scores["early"] = value if right else 0.0
                value = value / 2 if right else value
        return groups

    return Part(
        name="halved_after_each_right",
        call=call,
        reads=frozenset({"score:reward", "tag:exit"}),
        writes=frozenset({"score:early"}),
    )
