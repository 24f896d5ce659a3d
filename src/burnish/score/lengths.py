"""Scores that depend on the length of a reply, and on how early it is correct."""

from __future__ import annotations

from burnish.core.types import Group, Trace


def reply_length(trace: Trace, author: str = "policy") -> int:
    """Number of tokens written by the author."""
    return int(trace.by(author).sum())


def right_replies(group: Group) -> int:
    """Number of correct replies of a group."""
    return sum(trace.scores["correct"] > 0 for trace in group.traces)
