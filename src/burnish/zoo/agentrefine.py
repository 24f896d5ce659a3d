"""AgentRefine: Enhancing Agent Generalization through Refinement Tuning (arXiv 2501.01702).

Which demonstrations of agents are kept: those that succeed, and hold mistakes that were mended.

Demonstrated conversations of an agent, with its mistakes marked: they are read, and not trained on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from burnish import credit, draw, learn, rollout
from burnish.core.messages import Message, as_messages, text_of
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.task import Task
from burnish.core.types import Group
from burnish.envs.action_check import Fault, check_action, check_calls
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.tasks.source import Source
from burnish.tasks.task_set import MadeTasks

AGENTREFINE = Paper(
    "agentrefine", "2501.01702", "AgentRefine: Enhancing Agent Generalization through Refinement Tuning"
)

METRICS = (
    (
        "faulty_replies",
        "What was kept",
        "share of the demonstrated replies that are no valid action, which are not trained on",
    ),
)


FAULTS = "faults"  # in Task.given: one entry for each reply, {"kind", "reason"} or None


class Refined(MadeTasks):
    """The conversations of a source, with "train": False on each reply that is not a valid action.

    What a row says about its actions: `actions` and `slots` (patterns and values), or `tools` (JSON schemas); in
    envs/action_check.py. Rows without either are not checked. given["faults"] has the fault of each reply.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.gives = source.gives | {FAULTS}

    def task(self, split: str, index: int) -> Task:
        return marked(self.source.task(split, index))


def marked(task: Task) -> Task:
    """The task with its faulty replies marked."""
    found = faults_of(task)
    given: dict[str, object] = {
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


def count_refinements(faults: Sequence[object]) -> int:
    """How often a faulty reply was followed by one without a fault."""
    return sum(bool(one) and not following for one, following in zip(faults, faults[1:], strict=False))


def _check_rows(task: Task, actions: object, slots: object) -> None:
    if not isinstance(actions, Sequence) or isinstance(actions, str) or not all(isinstance(a, str) for a in actions):
        raise ValueError(
            f'task {task.key[:60]!r} has actions that are not a list of patterns; write ["go to {{place}}", "look"]'
        )
    if slots is not None and not isinstance(slots, Mapping):
        raise ValueError(f'task {task.key[:60]!r} has slots that are not an object; write {{"place": ["kitchen"]}}')


@supplies("tag:refined")
def refined(least: int = 1) -> Part:
    """Only conversations that end in success with at least so many refinements; their traces get the tag "refined".

    A refinement is a faulty reply followed by one without a fault (given "faults"). A conversation succeeds if its
    column `success` does not say otherwise and its last reply has no fault.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            faults = group.task.given[FAULTS]
            succeeded = group.task.given.get("success", True) and not (faults and faults[-1])
            step.notes.add("faulty_replies", sum(bool(fault) for fault in faults), max(1, len(faults)))
            if group.traces and succeeded and count_refinements(faults) >= least:
                kept.append(group)
                for trace in group.traces:
                    trace.tags = trace.tags | {"refined"}
        step.notes.add("dropped/not_refined", len(groups) - len(kept), max(1, len(groups)))
        return kept

    return Part(
        name=f"refined({least})",
        call=call,
        reads=frozenset({f"given:{FAULTS}"}),
        writes=frozenset({"tag:refined"}),
        updates=frozenset({"tokens:demo"}),
    )


@register(
    AGENTREFINE,
    family="agents",
    summary="SFT on an agent's conversations in which mistakes are read but not trained on, and their mending is.",
    when="Trajectories contain invalid actions and the environment's complaints, and the model should learn to mend.",
    example="burnish train agentrefine --task my_trajectories.jsonl",
    trial={"refinements": 0, "updates": 1},
)
def agentrefine(
    task: draw.Source,
    *,
    refinements: Annotated[int, Option("Mended mistakes that a conversation must hold.", at_least=0)] = 1,
    updates: opt.Updates = 1,
) -> Method:
    """Refinement tuning.

    L = -(1 / N) sum over turns k of m_k log pi(thought_k, action_k | history), N the tokens with m_k = 1
    m_k = 0 where the reply is no valid action: no "Thought: ... Action: ...", an unknown action, wrong arguments

    Faulty replies and the feedback on them stay in the context. Kept are conversations that end in success and hold at
    least so many refinements, a fault followed by a valid reply; 1 is ours. The columns `actions` and `slots` (or
    `tools`) of a row say what is valid, `success` how it ended. Conversations without faults and refinements = 0 are
    SFT. Left out: the writing of scripts and trajectories by a model that plays game master and player; the data is
    given.
    """
    source = Refined(task)
    return method(
        draw=draw.demos(source),
        rollout=rollout.demonstrated(),
        select=refined(refinements),
        credit=credit.claim("sft", "demo", tag="refined"),
        learn=learn.Learn(learn.imitate(on=learn.CLAIMED), updates=updates),
        models=roles(),
    )
