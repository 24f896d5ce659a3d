"""Scores that know how long a reply is, and how soon it was right."""

from __future__ import annotations

from burnish.nouns import Group, Trace
from burnish.parts import Part, per_trace, supplies
from burnish.step import Step


def reply_length(trace: Trace, author: str = "policy") -> int:
    """The tokens that the author wrote."""
    return int(trace.by(author).sum())


def right_replies(group: Group) -> int:
    """How many replies of a group the verifier called correct."""
    return sum(trace.scores["correct"] > 0 for trace in group.traces)


@supplies("score:within")
def within(share: float, *, author: str = "policy") -> Part:
    """scores["within"] = 1 where the reply has at most share x (the run's longest reply) tokens, else 0."""

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
    """scores["effort"] = r - price L / |y|, L the run's longest reply: the shorter, the dearer (RLSP, arXiv 2502.06773)."""

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
    """scores["concise"] = 1 - |y| / L where all replies to the prompt are right, L the run's longest reply; else the reward.

    Length is a matter only once correctness is not (ConciseR's "walk before you run", arXiv 2505.21178).
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
    """scores["early"] = 1 / 2^(k - 1) for the k-th right reply of a group in its order, 0 for a wrong one (S-GRPO).

    The group's order is from the earliest exit to the whole thought: the sooner right, the better (arXiv 2505.07686).
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
