"""Scores from the task itself: its verifier, or the user's reward function."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from burnish.core.parts import Part, supplies
from burnish.core.scorer import mark_failed, without_failed
from burnish.core.step import Step
from burnish.core.task import CANARY_PASSED
from burnish.core.types import Group, Task, Verdict
from burnish.models.chat import Chat
from burnish.score.judge import judge_traces, reply_text, require_verifier, write_verdicts
from burnish.tasks.source import EagerScoring, Source
from burnish.tasks.task_set import task_set


@supplies("score:reward")
def verify(source: Source, *, author: str = "policy", reader: str = "policy") -> Part:
    """scores["reward"] and scores["correct"] of every trace, from the text after the prompt.

    If the verifier raises, the trace scores 0 and its note holds the reason; the run continues.
    """
    require_verifier(source)
    tasks = task_set(source)
    eager, drop_failed = tasks.eager, tasks.drop_failed

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.models[reader].chat
        asked = [(group.task, trace) for group in groups for trace in group.traces]
        verdicts = judge_traces(source, asked, chat) if eager is None else _collected(eager, groups, step, chat)
        write_verdicts([trace for _, trace in asked], verdicts)
        failed = set()
        for (_, trace), verdict in zip(asked, verdicts, strict=True):
            if verdict.failed:
                mark_failed(trace, verdict.reason, counted=True)
                failed.add(id(trace))
        if failed:
            step.notes.count("reward_failures", len(failed))
        if forged := sum(verdict.parts.get(CANARY_PASSED, 0.0) for verdict in verdicts):
            step.notes.count("canaries_passed", int(forged))
        return without_failed(groups, lambda trace: id(trace) in failed) if drop_failed else groups

    return Part(
        name=f"verify({source.name})",
        kind="task_reward",
        call=call,
        begin=None if eager is None else lambda group, step: _begin(eager, group, step, step.models[reader].chat),
        reads=frozenset({f"tokens:{author}"}),
        writes=frozenset({"score:reward"}),
    )


@dataclass(frozen=True)
class _Begun:
    """A reply that is being scored, the k-th of one call."""

    task: Task
    call: Future[list[Any]]
    k: int


def _begin(scoring: EagerScoring, group: Group, step: Step, chat: Chat) -> None:
    """Start scoring a group's replies."""
    call = scoring.begin([group.task] * len(group.traces), [reply_text(trace, chat) for trace in group.traces])
    for k, trace in enumerate(group.traces):
        step.begun[trace.id] = _Begun(group.task, call, k)


def _collected(scoring: EagerScoring, groups: list[Group], step: Step, chat: Chat) -> Sequence[Verdict]:
    """A verdict for each trace, in order; groups whose scoring has not been started yet are started now."""
    for group in groups:
        found = [step.begun.get(trace.id) for trace in group.traces]
        fresh = [t for t, one in zip(group.traces, found, strict=True) if one is None or one.task is not group.task]
        if fresh:
            _begin(scoring, Group(group.task, fresh), step, chat)
    calls = [step.begun[trace.id] for group in groups for trace in group.traces]
    return scoring.heard([one.call.result()[one.k] for one in calls])
