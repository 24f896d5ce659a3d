"""Scores from the task itself: its verifier, or the user's reward function."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from burnish.cast.chat import Chat
from burnish.nouns import Group, Task, Trace, Turn, Verdict
from burnish.parts import Part, supplies
from burnish.step import Step
from burnish.tasks.rewarded import Found, Rewarded
from burnish.tasks.source import NoVerifier, Source

_ONE_AT_A_TIME = threading.RLock()  # a verifier or reward function need not know that sampling may have its own thread


@supplies("score:reward")
def verify(source: Source, *, author: str = "policy", reader: str = "policy") -> Part:
    """scores["reward"] and scores["correct"] for every trace, from what the author wrote (with a demonstrated prefix).

    A verifier that raises is a fault of the task, not of the run: the trace scores 0 and its note says why.
    """
    require_verifier(source)
    pooled = source if isinstance(source, Rewarded) and source.graders is not None else None

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.cast[reader].chat
        asked = [(group.task, trace) for group in groups for trace in group.traces]
        if pooled is not None:
            verdicts = _collected(pooled, groups, step, chat)
        else:
            verdicts = judge(source, [task for task, _ in asked], [reply_text(trace, chat) for _, trace in asked])
        for (_, trace), verdict in zip(asked, verdicts, strict=True):
            trace.scores["reward"] = verdict.score
            trace.scores["correct"] = float(verdict.correct)
            if verdict.reason:
                trace.note["why"] = verdict.reason
        failed = {id(trace) for (_, trace), verdict in zip(asked, verdicts, strict=True) if verdict.failed}
        if failed:
            step.notes.count("reward_failures", len(failed))
        if isinstance(source, Rewarded) and source.drop_failed:
            for group in groups:
                group.traces = [trace for trace in group.traces if id(trace) not in failed]
        return groups

    return Part(
        name=f"verify({source.name})",
        call=call,
        begin=None if pooled is None else lambda group, step: _begin(pooled, group, step, step.cast[reader].chat),
        reads=frozenset({f"tokens:{author}"}),
        writes=frozenset({"score:reward"}),
    )


@dataclass(frozen=True)
class _Begun:
    """A reply that is being judged: the k-th of those in one call. Holds the reply, so that nothing else can have its id."""

    reply: Turn
    task: Task
    call: Future[Found]
    k: int


def _begin(source: Rewarded, group: Group, step: Step, chat: Chat) -> None:
    """Have a group's replies judged by one of the source's workers."""
    call = source.begin([group.task] * len(group.traces), [reply_text(trace, chat) for trace in group.traces])
    for k, trace in enumerate(group.traces):
        step.begun[id(trace.turns[-1])] = _Begun(trace.turns[-1], group.task, call, k)


def _collected(source: Rewarded, groups: list[Group], step: Step, chat: Chat) -> list[Verdict]:
    """A verdict for each trace, in order; what was not begun while it was written is begun now, group by group."""
    for group in groups:
        found = [step.begun.get(id(trace.turns[-1])) for trace in group.traces]
        fresh = [t for t, one in zip(group.traces, found, strict=True) if one is None or one.task is not group.task]
        if fresh:
            _begin(source, Group(group.task, fresh), step, chat)
    calls = [step.begun[id(trace.turns[-1])] for group in groups for trace in group.traces]
    return source.heard([one.call.result()[one.k] for one in calls])


def require_verifier(source: Source, split: str = "train") -> None:
    """Raises NoVerifier, before anything is sampled, where replies cannot be judged. A reward function always can."""
    if not isinstance(source, Rewarded):
        _one(source, source.task(split, 0), "")


def judge(source: Source, tasks: list[Task], replies: list[str]) -> list[Verdict]:
    """A verdict for each reply. A reward function judges a whole batch at once; a verifier one reply at a time."""
    if not replies:
        return []
    with _ONE_AT_A_TIME:
        if isinstance(source, Rewarded):
            return source.verdicts(tasks, replies)
        return [_one(source, task, reply) for task, reply in zip(tasks, replies, strict=True)]


def _one(source: Source, task: Task, reply: str) -> Verdict:
    try:
        return source.verify(task, reply)
    except NoVerifier:
        raise  # the user can mend this: a dataset without answers
    except Exception as error:
        return Verdict(0.0, False, f"the verifier of {source.name!r} raised {type(error).__name__}: {error}")


def reply_text(trace: Trace, chat: Chat) -> str:
    """All that was written after the prompt, by whichever author, decoded as one text: a word may span two turns."""
    said = [turn.tokens for turn in trace.turns[1:]]
    return chat.text(said[0] if len(said) == 1 else torch.cat(said))
