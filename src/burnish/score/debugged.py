"""Rewards of self-debugging (LeDex): one for the refined program, one for the explanation before it."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

from burnish.core.parts import Part, supplies
from burnish.core.scorer import mark_failed
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.score.judge import reply_text
from burnish.score.maths.similarity import embedded
from burnish.score.segments import tokens_of
from burnish.tasks.debugging import Debugging, Refinement, read_refinement
from burnish.verifiers.verifier import verifier

MOST = 4  # references of one task
TASKS = 20_000  # tasks whose references are kept; the oldest is forgotten first
START = "refined_at"  # note of a trace: the position of the first token of the refinement


def code_reward(similarity: float, passed: float) -> float:
    """R_code = 5 (S_cb + S_ut) - 5, in [-5, 5]."""
    return 5 * (similarity + passed) - 5


def explanation_reward(similarity: float) -> float:
    """R_ex = (50 S_ex - 35) / 3, at least -5: 0.4 gives -5, 0.7 gives 0, 1 gives 5."""
    return max(-5.0, (50 * similarity - 35) / 3)


class Refinements:
    """The refinements of each task that passed its tests: programs and explanations, the newest MOST of each."""

    def __init__(self) -> None:
        self.name = "refinements"
        self.kept: dict[str, list[list[str]]] = {}

    def of(self, task: Task) -> list[Refinement]:
        """Those of a task; before any, its demonstration."""
        found = self.kept.get(task.key)
        if not found:
            return [read_refinement(str(task.given["demo"]))]
        return [Refinement(explanation, code, 0) for explanation, code in found]

    def add(self, task: Task, good: Refinement) -> None:
        own = self.kept.pop(task.key, [])
        pair = [good.explanation, good.code]
        self.kept[task.key] = [*(one for one in own if one != pair), pair][-MOST:]
        if len(self.kept) > TASKS:
            del self.kept[next(iter(self.kept))]

    def state_dict(self) -> dict[str, Any]:
        return {"kept": self.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept = {key: [list(pair) for pair in pairs] for key, pairs in state["kept"].items()}


def _keep(groups: list[Group], memory: Refinements, texts: list[str]) -> None:
    """Remember the replies that pass; texts: of all traces, in order."""
    asked = [(group.task, trace) for group in groups for trace in group.traces]
    for (task, trace), text in zip(asked, texts, strict=True):
        if trace.scores["correct"]:
            memory.add(task, read_refinement(text))


@supplies("score:explanation", "score:reward")
def debugged(source: Debugging, memory: Refinements, *, reader: str = "policy") -> Part:
    """scores["reward"] of the program and scores["explanation"] of every reply, and note["refined_at"].

    S_ut: the share of tests passed, in the sandbox; S_cb: the mean CodeBLEU to the task's good refinements; S_ex: the
    mean cosine to their explanations, by hashed words and characters (score/maths/similarity.py).
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.models[reader].chat
        asked = [(group.task, trace) for group in groups for trace in group.traces]
        texts = [reply_text(trace, chat) for _, trace in asked]
        outcomes = source.outcomes([task for task, _ in asked], texts)
        read = [read_refinement(text) for text in texts]
        similar = _codebleu(
            [(one.code, [good.code for good in memory.of(task)]) for (task, _), one in zip(asked, read, strict=True)]
        )
        for (task, trace), one, outcome, alike in zip(asked, read, outcomes, similar, strict=True):
            known = [other.explanation for other in memory.of(task) if other.explanation]
            trace.scores["reward"] = code_reward(alike, outcome.share)
            trace.scores["explanation"] = explanation_reward(explained(one.explanation, known))
            trace.scores["correct"] = float(outcome.correct)
            trace.note[START] = _start(trace, one, chat)
            if outcome.reason:
                trace.note["why"] = outcome.reason
            if outcome.failed:
                mark_failed(trace, outcome.reason)
        _keep(groups, memory, texts)
        return groups

    return Part(
        name=f"debugged({source.name})",
        call=call,
        reads=frozenset({"tokens:policy", "store:refinements"}),
        writes=frozenset({"score:reward", "score:explanation"}),
        state=(memory,),
    )


@supplies("store:refinements")
def keep_refinements(memory: Refinements, *, reader: str = "policy") -> Part:
    """The replies that pass are good refinements of their task from now on; `debugged` keeps those that it scores."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.models[reader].chat
        _keep(groups, memory, [reply_text(trace, chat) for group in groups for trace in group.traces])
        return groups

    return Part(
        name="keep_refinements",
        call=call,
        reads=frozenset({"tokens:policy"}),
        writes=frozenset({"store:refinements"}),
        state=(memory,),
    )


def explained(explanation: str, good: list[str]) -> float:
    """The mean cosine of an explanation to good ones; 0.7, which earns 0, where none is known; 0 for none at all."""
    if not good:
        return 0.7
    own = embedded(explanation)
    return statistics.fmean(float(np.dot(own, embedded(other))) for other in good)


def _codebleu(asked: list[tuple[str, list[str]]]) -> list[float]:
    """The mean CodeBLEU of each program to its references, from the sandbox."""
    rows = [{"answer": reference, "prompt": ""} for _, references in asked for reference in references]
    replies = [code for code, references in asked for _ in references]
    verdicts = iter(verifier("verifiers").judge({"kind": "verifier", "call": "codebleu"}, rows, replies))
    return [statistics.fmean(next(verdicts).score for _ in references) for _, references in asked]


def _start(trace: Trace, one: Refinement, chat: Any) -> int:
    """The position in the trace of the first token of the refinement; at the latest the last token."""
    turn, start, end = [*trace.spans()][-1]
    if not one.start or not len(turn):
        return start
    first, _ = tokens_of(turn.tokens, chat, (one.start, one.start + 1))
    return min(start + first, end - 1)
