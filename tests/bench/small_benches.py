"""Small data sets in the formats of public benchmarks, with questions of our own, written into a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_benches(folder: Path, count: int = 12) -> Path:
    """A file for each benchmark, as its authors or the hub have it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in {**_sums(count), **_choices(count), **_programs()}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "bbh_boolean_expressions.json").write_text(json.dumps({"canary": "none", "examples": _boolean(count)}))
    (folder / "bbh_boolean_expressions_train.json").write_text(json.dumps({"examples": _boolean(3)}))
    return folder


def _sums(count: int) -> dict[str, list[dict[str, Any]]]:
    def row(i: int) -> dict[str, Any]:
        a, b = 12 + 7 * i % 80, 11 + 5 * i % 70
        return {"question": f"{a}+{b}=?", "answer": f"{a} and {b} are {a + b}.\n#### {a + b}"}

    problem = {"problem": "What is $1+1$?", "solution": "It is $\\boxed{2}$.", "answer": "2", "level": 1}
    return {
        "gsm8k_test": [row(i) for i in range(count)],
        "gsm8k_train": [row(100 + i) for i in range(5)],
        "math500": [problem, {**problem, "problem": "Compute $\\frac14+\\frac14$.", "answer": "\\frac12"}],
        "ifeval": [
            {
                "key": 1,
                "prompt": "Say hello without commas.",
                "instruction_id_list": ["punctuation:no_comma"],
                "kwargs": [{}],
            },
            {
                "key": 2,
                "prompt": "Write 300 words.",
                "instruction_id_list": ["length_constraints:number_words"],
                "kwargs": [{"relation": "at least", "num_words": 300}],
            },
        ],
    }


def _choices(count: int) -> dict[str, list[dict[str, Any]]]:
    def options(i: int) -> tuple[list[str], int]:
        right = 3 * i % 17 + 4
        listed = [str(right + shift) for shift in (0, 1, -2, 10)]
        place = i % 4
        listed[0], listed[place] = listed[place], listed[0]
        return listed, place

    def question(i: int) -> str:
        return f"{3 * i % 17}+4=?"

    mmlu, arc, truth = [], [], []
    for i in range(count):
        listed, place = options(i)
        subject = "sums" if i % 2 else "small_sums"
        mmlu.append({"question": question(i), "choices": listed, "answer": place, "subject": subject})
        arc.append(
            {
                "id": str(i),
                "question": question(i),
                "choices": {"text": listed, "label": list("ABCD")},
                "answerKey": "ABCD"[place],
            }
        )
        right, *wrong = sorted(listed, key=lambda one: one != listed[place])
        first = {"choices": [right, *wrong], "labels": [1, 0, 0, 0]}
        several = {"choices": [right, wrong[0], wrong[1]], "labels": [1, 1, 0]}
        truth.append({"question": question(i), "mc1_targets": first, "mc2_targets": several})
    shots = [{**row, "subject": subject} for subject in ("sums", "small_sums") for row in mmlu[:5]]
    return {"mmlu_test": mmlu, "mmlu_dev": shots, "arc_test": arc, "arc_train": arc[:3], "truthfulqa": truth}


def _programs() -> dict[str, list[dict[str, Any]]]:
    function = {
        "task_id": "HumanEval/0",
        "prompt": 'def double(x: int) -> int:\n    """Twice x."""\n',
        "entry_point": "double",
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n",
    }
    short = {
        "task_id": 1,
        "text": "Write a function to add two numbers.",
        "code": "def add(a, b):\n    return a + b",
        "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0", "assert add(-1, 1) == 0"],
        "test_setup_code": "",
    }
    return {"humaneval": [function], "mbpp": [short], "mbpp_train": [short] * 3}


def _boolean(count: int) -> list[dict[str, str]]:
    return [
        {"input": f"not not {bool(i % 2)} is", "target": str(bool(i % 2))}
        if i % 3
        else {"input": f"True and {bool(i % 2)} is", "target": str(bool(i % 2))}
        for i in range(count)
    ]
