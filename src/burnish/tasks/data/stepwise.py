"""Rows of datasets with labelled steps in forms of their own: PRM800K, Math-Shepherd, ProcessBench."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnish.tasks.data.rows import Row

MARK = "\u043a\u0438"  # Math-Shepherd's tag after each step of `input`; + or - stands in its place in `label`


def spelled_steps(row: Row, where: str) -> Row:
    """The row with "prompt", "completions" and "labels", where it is of one of these datasets; else itself."""
    question, label = row.get("question"), row.get("label")
    if isinstance(question, Mapping) and "problem" in question and isinstance(label, Mapping) and "steps" in label:
        return _prm800k(row, question, label, where)
    if isinstance(row.get("input"), str) and isinstance(label, str) and MARK in row["input"]:
        return _math_shepherd(row, where)
    if {"problem", "steps", "final_answer_correct"} <= row.keys() and isinstance(label, int):
        return _processbench(row, label, where)
    return row


def _prm800k(row: Row, question: Mapping[str, Any], label: Mapping[str, Any], where: str) -> Row:
    """The steps that were chosen, up to the first wrong one: rated 1 or 0 true, -1 false, unrated null.

    A step that the labeler wrote is right. Where none was chosen, the first alternative is taken.
    """
    steps: list[str] = []
    labels: list[bool | None] = []
    for step in label["steps"]:
        place, own = step.get("chosen_completion"), step.get("human_completion")
        if place is None and own is not None:
            steps.append(str(own["text"] if isinstance(own, Mapping) else own))
            labels.append(True)
            continue
        if not step.get("completions"):
            raise ValueError(f"{where}: step {len(steps) + 1} has no completion; remove the row")
        said = step["completions"][place or 0]
        steps.append(str(said["text"]))
        labels.append(None if said.get("rating") is None else said["rating"] >= 0)
        if labels[-1] is False:
            break
    kept = {name: value for name, value in row.items() if name not in ("question", "label")}
    answer = question.get("ground_truth_answer")
    found = {"prompt": question["problem"], "completions": steps, "labels": labels}
    return kept | found | ({} if answer is None else {"answer": answer})


def _math_shepherd(row: Row, where: str) -> Row:
    """`input` has a tag after each step, and `label` a + or a - in its place; the problem stands before Step 1."""
    *pieces, rest = row["input"].split(MARK)
    told, place = row["label"], 0
    labels: list[bool] = []
    for piece in pieces:
        place += len(piece)
        if told[place - len(piece) : place] != piece or told[place : place + 1] not in ("+", "-"):
            raise ValueError(
                f"{where}: 'label' is not 'input' with + or - for each tag (step {len(labels) + 1} differs); "
                "mend or remove the row"
            )
        labels.append(told[place] == "+")
        place += 1
    problem, found, first = pieces[0].partition("Step 1:")
    if not found or not problem.strip():
        raise ValueError(f"{where}: there is no problem before 'Step 1:'; mend or remove the row")
    kept = {name: value for name, value in row.items() if name not in ("input", "label")}
    steps = [(found + first).strip(), *(piece.strip() for piece in pieces[1:])]
    tail = [] if not rest.strip() else [rest.strip()]  # words after the last tag are a step without a label
    return kept | {
        "prompt": problem.strip(),
        "completions": steps + tail,
        "labels": [*labels, *[None] * len(tail)],
        "separator": "\n",
    }


def _processbench(row: Row, label: int, where: str) -> Row:
    """`label` is the place of the first wrong step, -1 where all are right; what follows it has no label."""
    steps = [str(step) for step in row["steps"]]
    if not -1 <= label < len(steps):
        raise ValueError(f"{where}: the first wrong step is {label}, but there are {len(steps)} steps")
    end = len(steps) if label < 0 else label
    labels = [True] * end + [False] * (end < len(steps)) + [None] * (len(steps) - end - 1)
    kept = {name: value for name, value in row.items() if name not in ("steps", "label", "problem")}
    return kept | {"prompt": row["problem"], "completions": steps, "labels": labels}
