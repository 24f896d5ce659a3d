"""Another model answers after the policy's reply: its right answers are the reward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import test_judge_scorers
from judge_server import prompt_of, serving
from test_judge_scorers import at, scored
from test_judges import blocks_of


def test_a_chain_is_worth_what_the_other_model_makes_of_it(small_model: Path) -> None:
    """The task of the tests asks for letters in order; the other model repeats the last line of the chain."""
    task = test_judge_scorers.TASK.task("train", 0)
    right = str(task.given["demo"])

    def other(body: dict[str, Any]) -> str:
        return blocks_of(prompt_of(body))["thoughts"]

    with serving(other) as server:
        text = f"answered_by({at(server)})"
        replies = [right, "answer: nothing", right]
        traces, step = scored(small_model, text, str(task.prompt), replies, **dict(task.given))
        assert len(server.requests) == 2, "equal chains are one question"
    assert [trace.scores["reward/answered_by"] for trace in traces] == [1.0, 0.0, 1.0]
    assert step.notes.means()["judge_unread"] == 0


def test_an_answer_that_does_not_come_is_wrong(small_model: Path) -> None:
    task = test_judge_scorers.TASK.task("train", 0)
    right = str(task.given["demo"])
    with serving(lambda body: right) as server:
        server.faults = [400]
        judge = at(server, concurrency=1)
        traces, _ = scored(small_model, f"answered_by({judge})", str(task.prompt), ["a", "b"], **dict(task.given))
    assert sorted(trace.scores["reward/answered_by"] for trace in traces) == [0.0, 1.0]
