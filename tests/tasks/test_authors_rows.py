"""Rows as the authors of datasets release them: PRM800K, Math-Shepherd, ProcessBench, UltraFeedback."""

from __future__ import annotations

from typing import Any

import pytest

from burnish.tasks.data import Dataset
from burnish.tasks.data.formats import to_task


def one(row: dict[str, Any]) -> dict[str, Any]:
    return to_task(row, {}, "row 1").given


def step(*said: tuple[str, int | None], chosen: int | None = 0, human: Any = None) -> dict[str, Any]:
    completions = [{"text": text, "rating": rating, "flagged": None} for text, rating in said]
    return {"completions": completions, "human_completion": human, "chosen_completion": chosen}


def prm800k(*steps: dict[str, Any]) -> dict[str, Any]:
    question = {"problem": "How many?", "ground_truth_solution": "So \\boxed{4}.", "ground_truth_answer": "4"}
    label = {"steps": list(steps), "total_time": 3, "finish_reason": "found_error"}
    return {"labeler": "x", "generation": 9, "question": question, "label": label}


@pytest.mark.parametrize(
    ("steps", "texts", "labels"),
    [
        ([step(("a", 0)), step(("b", 1)), step(("c", -1))], ["a", "b", "c"], [True, True, False]),
        ([step(("a", 1)), step(("x", -1), ("b", 1), chosen=1), step(("c", 0))], ["a", "b", "c"], [True, True, True]),
        ([step(("x", -1), chosen=None, human="own"), step(("b", None))], ["own", "b"], [True, None]),
        ([step(("a", 1)), step(("x", -1), ("y", 0), chosen=None)], ["a", "x"], [True, False]),
        ([step(("a", -1)), step(("b", 1))], ["a"], [False]),
    ],
)
def test_prm800k(steps: list[dict[str, Any]], texts: list[str], labels: list[bool | None]) -> None:
    """The labels end at the first wrong step; 0 is not wrong."""
    given = one(prm800k(*steps))
    assert (given["steps"], given["labels"], given["answer"]) == (texts, labels, "4")
    assert to_task(prm800k(*steps), {}, "row").prompt == "How many?"


def test_math_shepherd() -> None:
    mark = "\u043a\u0438"
    said = "Two and two? Step 1: 2+2 is 4. {}\nStep 2: 4+1 is 6. {}\nStep 3: The answer is: 6 {}"
    row = {"input": said.format(mark, mark, mark), "label": said.format("+", "-", "-"), "task": "GSM8K"}
    task = to_task(row, {}, "row 1")
    assert task.prompt == "Two and two?"
    assert task.given["steps"] == ["Step 1: 2+2 is 4.", "Step 2: 4+1 is 6.", "Step 3: The answer is: 6"]
    assert task.given["labels"] == [True, False, False] and task.given["task"] == "GSM8K"
    with pytest.raises(ValueError, match="step 2 differs"):
        one({**row, "label": said.format("+", "?", "-")})
    with pytest.raises(ValueError, match="no problem before"):
        one({"input": f"x {mark}", "label": "x +"})


@pytest.mark.parametrize(
    ("label", "labels"),
    [(-1, [True] * 3), (1, [True, False, None]), (2, [True, True, False]), (0, [False, None, None])],
)
def test_processbench(label: int, labels: list[bool | None]) -> None:
    row = {"problem": "Why?", "steps": ["a", "b", "c"], "label": label, "final_answer_correct": False, "id": "gsm8k-1"}
    given = one(row)
    assert (given["steps"], given["labels"], given["id"]) == (["a", "b", "c"], labels, "gsm8k-1")
    with pytest.raises(ValueError, match="the first wrong step is 3"):
        one({**row, "label": 3})


def rated(text: str, overall: float, *ratings: str) -> dict[str, Any]:
    names = ("instruction_following", "honesty", "truthfulness", "helpfulness")
    annotations = {name: {"Rating": rating, "Rationale": "."} for name, rating in zip(names, ratings, strict=True)}
    return {"model": "m", "response": text, "annotations": annotations, "overall_score": overall, "critique": "."}


def test_ultrafeedback_by_the_mean_of_its_aspects() -> None:
    """A reply of 1 stands in overall_score as 10: by that field the worst would be the best."""
    replies = [
        rated("worst", 10, "1", "2", "1", "1"),
        rated("best", 8.5, "5", "N/A", "4", "5"),
        rated("middle", 7, "3", "3", "4", "3"),
    ]
    given = one({"source": "x", "instruction": "Hi", "models": ["m"] * 3, "completions": replies})
    assert given["responses"] == ["best", "middle", "worst"]
    assert given["scores"] == pytest.approx([14 / 3, 3.25, 1.25])
    for reply, mean in zip(replies, (1.25, 4.5, 3.25), strict=True):
        del reply["annotations"]
        reply["fine-grained_score"] = mean
    assert one({"instruction": "Hi", "completions": replies})["scores"] == [4.5, 3.25, 1.25]
    del replies[0]["fine-grained_score"]
    assert one({"instruction": "Hi", "completions": replies})["scores"] == [10, 8.5, 7], "one scale for all"


def test_files_of_labelled_steps_are_datasets() -> None:
    rows = [prm800k(step((f"a{i}", 1)), step((f"b{i}", -1))) | {"generation": i} for i in range(40)]
    for i, row in enumerate(rows):
        row["question"]["problem"] = f"How many {i}?"
    assert {"steps", "labels"} <= Dataset(rows).gives
