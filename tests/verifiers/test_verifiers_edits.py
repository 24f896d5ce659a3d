"""Verifiers of tool calls and patches, by hand-made cases."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from burnish.core.call_syntax import read_call
from burnish.core.task import Verdict
from burnish.verifiers import patches
from burnish.verifiers.assignment import best_assignment
from burnish.verifiers.checks import BadRow
from burnish.verifiers.edits import WrongEdit, apply_blocks, apply_patch, change_similarity, diff
from burnish.verifiers.table import build_check
from burnish.verifiers.tool_calls import tree


def verdict(call: str, reply: str, **row: Any) -> Verdict:
    read = read_call(call)
    assert read is not None
    return build_check(read)({"prompt": "", **row}, reply)


# ------------------------------------------------------------------------------------------------------- tool calls

WEATHER = {"name": "weather", "arguments": {"city": "Paris", "days": 3}}
TIME = {"name": "time", "arguments": {}}


def tagged(*calls: dict[str, Any]) -> str:
    return "".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)


def test_credit_for_a_call_by_hand() -> None:
    """Names 1, keys {city, days} & {city, unit} 1 of 3, values: city right: (1 + 1/3 + 1) / (1 + 1 + 2)."""
    said = {"name": "weather", "arguments": {"city": "Paris", "unit": "C"}}
    found = verdict("tool_calls", tagged(said), answer=[WEATHER])
    assert found.score == pytest.approx((1 + 1 / 3 + 1) / 4) and not found.correct
    toolrl = verdict("tool_calls(low=-3, high=3)", tagged(said), answer=[WEATHER])
    assert toolrl.score == pytest.approx(6 * (1 + 1 / 3 + 1) / 4 - 3)
    assert verdict("tool_calls(low=-3, high=3)", tagged(WEATHER), answer=json.dumps([WEATHER])).score == 3


def test_calls_are_a_set_unless_they_are_ordered() -> None:
    both = [WEATHER, TIME]
    for reply in (tagged(TIME, WEATHER), json.dumps([TIME, WEATHER]), f"<think>x</think>{tagged(TIME, WEATHER)}"):
        assert verdict("tool_calls", reply, answer=both).correct
    assert verdict("tool_calls(ordered=True)", tagged(WEATHER, TIME), answer=both).correct
    assert verdict("tool_calls(ordered=True)", tagged(TIME, WEATHER), answer=both).score == pytest.approx(1 / 5)
    openai = {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris", "days": 3}'}}
    assert verdict("tool_calls", json.dumps(openai), answer=[WEATHER]).correct
    lines = f"<tool_call>\n{json.dumps(TIME)}\n{json.dumps(WEATHER)}\n</tool_call>"
    assert verdict("tool_calls", lines, answer=both).correct


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "weather(city='Paris', days=3)",
        "<tool_call>{</tool_call>",
        "<tool_call>" * 10_000,
        tagged(WEATHER)[:-3],
        f"<think>{tagged(WEATHER)}</think>",
        json.dumps([WEATHER] * 100),
        '{"name": "weather", "arguments": "nan"}',
        '{"name": "weather", "name": "weather", "arguments": {"city": "Paris", "days": 3}}',
    ],
)
def test_these_are_no_right_calls(reply: str) -> None:
    assert verdict("tool_calls", reply, answer=[WEATHER]).score == 0


def test_repeated_calls_and_calls_where_none_is_right_lose() -> None:
    repeated = verdict("tool_calls", tagged(*[WEATHER] * 10), answer=[WEATHER])
    assert repeated.score == pytest.approx((0.1 + 3) / 4) and not repeated.correct
    assert verdict("tool_calls", "Hello.", answer=[]).correct
    assert not verdict("tool_calls", tagged(TIME), answer=[]).correct
    assert not verdict(
        "tool_calls",
        tagged({**WEATHER, "arguments": {"city": "Paris", "days": True}}),
        answer=[{**WEATHER, "arguments": {"city": "Paris", "days": 1}}],
    ).correct
    with pytest.raises(BadRow, match="right tool calls of a row"):
        verdict("tool_calls", "", answer="[1]")


def test_trees_agree_in_part() -> None:
    """Common keys a (1) and b (lists: 1 of 2), of the keys a, b, c: 1.5 / 3."""
    assert tree({"a": 1, "b": [1, 2]}, {"a": 1.0, "b": [1], "c": 0}) == pytest.approx(0.5)
    assert tree([], []) == tree({}, {}) == 1 and tree("1", 1) == tree(True, 1) == tree([1], {"0": 1}) == 0


def test_the_best_assignment_is_the_best_of_all() -> None:
    dice = random.Random(1)
    for _ in range(100):
        rows, columns = dice.randrange(1, 5), dice.randrange(0, 5)
        credit = [[dice.random() for _ in range(columns)] for _ in range(rows)]
        size = max(rows, columns)
        full = [[credit[i][j] if i < rows and j < columns else 0.0 for j in range(size)] for i in range(size)]
        slow = max(sum(full[i][p[i]] for i in range(size)) for p in itertools.permutations(range(size)))
        assert best_assignment(credit) == pytest.approx(slow)


# ---------------------------------------------------------------------------------------------------------- patches

FILES = {"a.py": "one\ntwo\nthree\n", "b.py": "x\n"}
PATCH = "--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"


def block(path: str, search: str, replacement: str) -> str:
    return f"### {path}\n<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE\n"


def edited(*blocks: str) -> str:
    return f"<think>hm</think><answer>\n```python\n{''.join(blocks)}```\n</answer>"


def test_an_identical_patch_is_one_and_an_additional_file_halves_it() -> None:
    right = edited(block("a.py", "two", "2"))
    assert verdict("swe_rl", right, files=FILES, patch=PATCH) == Verdict(1.0, True)
    assert verdict("swe_rl", right, files=FILES, new_files={**FILES, "a.py": "one\n2\nthree\n"}).correct
    more = edited(block("a.py", "two", "2"), block("b.py", "x", "y"))
    assert verdict("swe_rl", more, files=FILES, patch=PATCH).score == pytest.approx(0.5)


def test_the_similarity_is_that_of_the_diffs_by_hand() -> None:
    """Diffs " one / -two / +2 / three" and "... +TWO ..." differ in 1 against 3 characters: 2 M / T."""
    said = {"a.py": "one\nTWO\nthree\n"}
    right = apply_patch(PATCH, FILES)
    shared = len(diff(FILES["a.py"], right["a.py"])) - 1
    expected = 2 * shared / (2 * shared + 1 + 3)
    assert change_similarity(said, right, FILES) == pytest.approx(expected)
    assert change_similarity({}, {}, FILES) == 1 and change_similarity({}, right, FILES) == 0


@pytest.mark.parametrize(
    "reply",
    [
        "",
        block("a.py", "two", "2"),
        "<think></think><answer>" + block("a.py", "two", "2") + "</answer>",
        edited(),
        edited(block("a.py", "four", "2")),
        edited(block("a.py", "two", "two")),
        edited(block("c.py", "two", "2")),
        edited(block("a.py", "", "2")),
        edited("### a.py\n<<<<<<< SEARCH\ntwo\n=======\n2\n"),
        edited("<<<<<<< SEARCH\ntwo\n=======\n2\n>>>>>>> REPLACE\n"),
        edited(block("a.py", "o", "x" * 150_000)) + "y" * 100_000,
        edited("### a.py\n<<<<<<< SEARCH\n" * 5_000),
        edited(block("a.py", "two", "2")) + "<answer>",
    ],
)
def test_edits_that_cannot_be_applied_cost_one(reply: str) -> None:
    assert verdict("swe_rl", reply, files=FILES, patch=PATCH).score == -1


def test_a_slow_comparison_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "SECONDS", 0.3)
    right = {"a.py": "ba" * 60_000 + "\n"}
    found = verdict("swe_rl", edited(block("a.py", "q", "ab" * 60_000)), files={"a.py": "q\n"}, new_files=right)
    assert found.score == 0 and "stopped" in found.reason


def test_a_patch_that_does_not_fit_is_the_fault_of_the_row() -> None:
    with pytest.raises(BadRow, match="does not fit its files: line 2 of a.py"):
        verdict("swe_rl", "", files={"a.py": "one\n2\n"}, patch=PATCH)
    with pytest.raises(BadRow, match="'patch' .* or 'new_files'"):
        verdict("swe_rl", "", files=FILES)
    with pytest.raises(WrongEdit, match="changes no file"):
        apply_patch("hello", FILES)
    assert apply_blocks(block("a.py", "two", "2"), FILES) == {"a.py": "one\n2\nthree\n"}
    added = "--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,2 @@\n+1\n+2\n"
    assert apply_patch(added, FILES) == {"new.py": "1\n2\n"}
