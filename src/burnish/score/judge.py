"""The verdicts of replies: the one way in which verify, rollouts that judge their own replies, and evaluation score."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import torch

from burnish.core.types import Task, Trace, Verdict
from burnish.envs.tools import TAG
from burnish.models.chat import Chat
from burnish.tasks.source import Source
from burnish.tasks.task_set import task_set

LAST = "last_reply"  # the tag of a trace whose last turn alone is the reply, where the policy also wrote earlier ones
_ONE_AT_A_TIME = threading.RLock()  # verifiers and reward functions need not be thread-safe


def require_verifier(source: Source, split: str = "train") -> None:
    """Raise NoVerifier, before anything is sampled, if replies cannot be scored."""
    task_set(source).require_verifier(split)


def judge(source: Source, tasks: list[Task], replies: list[str]) -> Sequence[Verdict]:
    """A verdict for each reply, as the source scores a batch (tasks/scoring.py)."""
    if not replies:
        return []
    with _ONE_AT_A_TIME:
        return task_set(source).verdicts(tasks, replies)


def judge_traces(source: Source, asked: Sequence[tuple[Task, Trace]], chat: Chat) -> Sequence[Verdict]:
    """A verdict for each trace, from the text after its prompt."""
    return judge(source, [task for task, _ in asked], [reply_text(trace, chat) for _, trace in asked])


def write_verdicts(traces: Iterable[Trace], verdicts: Iterable[Verdict]) -> None:
    """scores["reward"], scores["correct"], scores["reward/NAME"] of each reward function, and why as note["why"]."""
    for trace, verdict in zip(traces, verdicts, strict=True):
        trace.scores["reward"] = verdict.score
        trace.scores["correct"] = float(verdict.correct)
        for name, part in verdict.parts.items():
            trace.scores[f"reward/{name}"] = part
        if verdict.reason:
            trace.note["why"] = verdict.reason


def reply_text(trace: Trace, chat: Chat) -> str:
    """The text after the prompt, of all authors, decoded at once, because a word may span two turns.

    Of an episode with tools, and of a trace with the tag "last_reply", the last reply: it is the answer. Empty where
    there was no reply: the environment failed, or another player ended the game.
    """
    said = [turn.tokens for turn in trace.turns[-1 if trace.tags & {TAG, LAST} else 1 :]]
    return chat.text(said[0] if len(said) == 1 else torch.cat(said)) if said else ""
