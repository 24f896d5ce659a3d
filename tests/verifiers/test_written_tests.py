"""Tests that a language model writes: how its answers are read, and that right programs decide which of them count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from guards import guards
from judge_server import prompt_of, serving

from burnish.cli import main
from burnish.datagen.written_tests import asserts_of, inputs_of

pytestmark = guards("verifiers/code", "commands/tests.py")

ASSERTS = """Here they are:
```python
def helper(): pass
assert twice(1) == 2
assert twice(1) == 2
assert twice(0) == 0, "zero"
assert twice(2) == 5
assert twice(-3) == -6
assert twice(
assert twice(10) == 20; import os
assert twice(7) == 14
assert twice(100) == 200
```"""

INPUTS = """```input
3
```
```input
-1
```
```python
import random
def generate_1():
    return "5\\n"
```
```python
def hack_1():
    return "1000\\n"
```
```python
def validate(text):
    return int(text) >= 0
```"""


def test_asserts_are_read_line_by_line() -> None:
    """Once each; a line that is no Python, or more than an assert, is left out."""
    assert asserts_of(ASSERTS) == [
        "assert twice(1) == 2",
        'assert twice(0) == 0, "zero"',
        "assert twice(2) == 5",
        "assert twice(-3) == -6",
        "assert twice(7) == 14",
        "assert twice(100) == 200",
    ]
    assert asserts_of("I cannot.") == []


def test_functions_are_sorted_by_their_names() -> None:
    found = inputs_of(INPUTS)
    assert found["direct"] == ["3\n", "-1\n"] and "def validate" in str(found["validator"])
    assert [len(found[name]) for name in ("generators", "hacks")] == [1, 1]  # type: ignore[arg-type]


def made(tmp_path: Path, row: dict[str, Any], answer: str, *words: str) -> list[dict[str, Any]]:
    file, out = tmp_path / "problems.jsonl", tmp_path / "tested.jsonl"
    file.write_text(json.dumps(row) + "\n")
    with serving(lambda body: answer) as server:
        writer = f"endpoint({server.url}, m, cache=off)"
        assert main(["tests", str(file), "--out", str(out), "--writer", writer, "--unsafe-code", *words]) == 0
        assert row["prompt"] in prompt_of(server.requests[0])
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_asserts_that_the_reference_fails_are_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"prompt": "Double a number.", "canonical_solution": "def twice(x):\n    return 2 * x\n"}
    (found,) = made(tmp_path, row, ASSERTS, "--rule", "acecoder")
    assert "assert twice(2) == 5" not in found["test_list"] and len(found["test_list"]) == 5
    assert "1 failed by the reference" in capsys.readouterr().out


def test_inputs_are_validated_and_right_programs_agree(tmp_path: Path) -> None:
    """3, 5 and 1000 are valid; -1 is not. Two programs agree on the outputs."""
    oracles = ["print(2 * int(input()))", "n = int(input())\nprint(n + n)"]
    (found,) = made(tmp_path, {"prompt": "Double a number.", "oracles": oracles}, INPUTS)
    assert sorted(zip(found["inputs"], found["outputs"], strict=True)) == [
        ("1000\n", "2000\n"),
        ("3\n", "6\n"),
        ("5\n", "10\n"),
    ]
    assert sorted(found["test_kinds"]) == ["direct", "generated", "hack"]
