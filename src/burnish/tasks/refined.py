"""Demonstrated conversations of an agent, with its mistakes marked: they are read, and not trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from burnish.core.messages import Message, as_messages, text_of
from burnish.core.task import Task, Verdict
from burnish.envs.action_check import Fault, check_action, check_calls
from burnish.tasks.batched import batched
from burnish.tasks.source import EagerScoring, SameTasks, Source

FAULTS = "faults"  # in Task.given: one entry for each reply, {"kind", "reason"} or None


class Refined(SameTasks):
    """The conversations of a source, with "train": False on each reply that is not a valid action.

    What a row says about its actions: `actions` and `slots` (patterns and values), or `tools` (JSON schemas); in
    envs/action_check.py. Rows without either are not checked. given["faults"] has the fault of each reply.
    """

    def __init__(self, source: Source) -> None:
        inner = batched(source)
        super().__init__(inner, inner.drop_failed)
        self._inner = inner
        self.gives = source.gives | {FAULTS}

    @property
    def eager(self) -> EagerScoring | None:
        return self._inner.eager

    def task(self, split: str, index: int) -> Task:
        return marked(self.source.task(split, index))

    def require_verifier(self, split: str) -> None:
        self._inner.require_verifier(split)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self._inner.verify(task, reply)

    def verdicts(self, tasks: list[Task], replies: list[str]) -> Sequence[Verdict]:
        return self._inner.verdicts(tasks, replies)


def marked(task: Task) -> Task:
    """The task with its faulty replies marked."""
    found = faults_of(task)
    given: dict[str, Any] = {
        **task.given,
        FAULTS: [None if fault is None else {"kind": fault.kind, "reason": fault.reason} for fault in found],
    }
    if any(found):
        left = iter(found)
        given["messages"] = [
            {**message, "train": False} if message["role"] == "assistant" and next(left) else message
            for message in conversation_of(task)
        ]
    return replace(task, given=given)


def conversation_of(task: Task) -> list[Message]:
    """All messages of a demonstration."""
    if task.given.get("messages") is not None:
        return list(task.given["messages"])
    return [*as_messages(task.prompt), {"role": "assistant", "content": str(task.given["demo"])}]


def faults_of(task: Task) -> list[Fault | None]:
    """The fault of each reply of a demonstration, by what its row says about actions."""
    replies = [message for message in conversation_of(task) if message["role"] == "assistant"]
    actions, slots, tools = (task.given.get(name) for name in ("actions", "slots", "tools"))
    if actions is not None:
        _check_rows(task, actions, slots)
        return [check_action(text_of(reply), actions, slots) for reply in replies]
    return [check_calls(text_of(reply), tools) if tools else None for reply in replies]


def refinements(faults: Sequence[Any]) -> int:
    """How often a faulty reply was followed by one without a fault."""
    return sum(bool(one) and not following for one, following in zip(faults, faults[1:], strict=False))


def _check_rows(task: Task, actions: Any, slots: Any) -> None:
    if not isinstance(actions, Sequence) or isinstance(actions, str) or not all(isinstance(a, str) for a in actions):
        raise ValueError(
            f'task {task.key[:60]!r} has actions that are not a list of patterns; write ["go to {{place}}", "look"]'
        )
    if slots is not None and not isinstance(slots, Mapping):
        raise ValueError(f'task {task.key[:60]!r} has slots that are not an object; write {{"place": ["kitchen"]}}')
