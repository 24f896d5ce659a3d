"""The verifier of each row: by its source, by its name, by what it has."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from burnish.core.call_syntax import read_call
from burnish.reward_functions.resolve import make_reward, read_rewards
from burnish.verifiers.sources import SOURCES, auto, by_columns, by_source
from burnish.verifiers.table import VERIFIERS, load_verifiers


@pytest.mark.parametrize(
    ("source", "call"),
    [
        ("openai/gsm8k", "math"),
        ("math__merged_deduped_dapo", "math"),
        ("MATH-500", "math"),
        ("logic__zebra_puzzle_dataset", "zebra"),
        ("logic__ordering_puzzle", "ordering"),
        ("logic__arcagi1", "grid"),
        ("logic__arcagi2", "grid"),
        ("simulation__barc", "grid"),
        ("simulation__codeio", "codeio"),
        ("stem__web", "math"),
        ("stem_web", "math"),
        ("stem__supergpqa", "choice"),
        ("arc_agi1", "choice"),  # the names differ: arc + "_", not arc_agi + "1"
        ("arcagi", "grid"),
        ("allenai/ai2_arc", None),
        ("cais/mmlu", "choice"),
        ("searchR1_nq", "exact_match"),
        ("table__hitab", "answer_list"),
        ("mathematics", None),
        ("", None),
    ],
)
def test_the_longest_known_beginning_decides(source: str, call: str | None) -> None:
    load_verifiers()
    if call:
        assert by_source()({"data_source": source}) == call == auto()({"kind": source})
    else:
        with pytest.raises(ValueError, match="unknown; known are .*gsm8k.*mmlu|needs a column 'data_source'"):
            by_source()({"data_source": source})


def test_a_source_that_cannot_be_judged_is_refused() -> None:
    with pytest.raises(ValueError, match="no verifier is for the data_source 'simulation__cruxeval-o': their replies"):
        by_source()({"data_source": "simulation__cruxeval-o"})
    assert by_source({"simulation__cruxeval": "exact"})({"data_source": "simulation__cruxeval-o"}) == "exact"


def test_a_mapping_of_ones_own_comes_first() -> None:
    choose = auto({"My_Data": "f1(minimum=0.9)", "gsm8k": "exact"})
    assert choose({"data_source": "my_data/part1"}) == "f1(minimum=0.9)"
    assert choose({"data_source": "openai/gsm8k"}) == "exact"
    with pytest.raises(ValueError, match="no verifier 'nothing'"):
        auto({"x": "nothing"})
    with pytest.raises(ValueError, match="a mapping is"):
        auto("gsm8k")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "call"),
    [
        ({"answer": "72"}, "math"),
        ({"answer": r"\frac{1}{2}"}, "math"),
        ({"answer": "x^2 + 1"}, "math"),
        ({"answer": "Paris"}, "exact_match"),
        ({"answer": "B", "choices": ["x", "y"]}, "choice"),
        ({"answer": ["a", "b"]}, "answer_list"),
        ({"answer": [{"name": "f", "arguments": {}}]}, "tool_calls"),
        ({"answer": {"a": 1}}, "json_equal"),
        ({"answer": {"a": 1}, "state": {}}, "world_state"),
        ({"instruction_id_list": ["x"]}, "instructions"),
        ({"files": {}, "patch": ""}, "swe_rl"),
        ({"sources": [], "supports": []}, "citations"),
        ({"schema": {}}, "json_format"),
    ],
)
def test_the_columns_decide_without_a_source(row: dict[str, Any], call: str) -> None:
    assert by_columns(row) == call


def test_every_source_has_a_verifier() -> None:
    known = load_verifiers()
    names = {read_call(call).name for call in SOURCES.values()}  # type: ignore[union-attr]
    assert names - known.keys() <= {"code"}


def test_code_goes_to_the_verifier_of_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    load_verifiers()
    for name in [name for name, entry in VERIFIERS.items() if "code" in entry.kinds]:
        monkeypatch.delitem(VERIFIERS, name)
    with pytest.raises(ValueError, match="verifier of programs, and none is installed"):
        auto()({"data_source": "codegen__leetcode2k"})
    entry = VERIFIERS["math"]
    monkeypatch.setitem(VERIFIERS, "programs", type(entry)("programs", entry.build, kinds=("code",)))
    assert auto()({"data_source": "codegen__leetcode2k"}) == auto()({"test_list": ["assert True"]}) == "programs"


def test_rows_of_several_kinds_in_one_batch() -> None:
    """As verl's rows: the answers stand in reward_model."""
    told = [{"ground_truth": "72", "style": "rule"}, {"ground_truth": "Paris", "style": "rule"}, None, None]
    columns = {
        "data_source": ["openai/gsm8k", "searchR1_nq", None, None],
        "reward_model": told,
        "answer": [None, None, "B", None],
        "choices": [None, None, ["x", "y"], None],
        "verifier": [None, None, None, "tags(think)"],
    }
    replies = ["#### 72", "paris", "(A)", "<think>x</think>"]
    found = make_reward(read_rewards("auto"))(["?"] * 4, replies, columns)
    assert [verdict.score for verdict in found] == [1, 1, 0, 1]
    assert found[2].reason == "the answer is B, not A"
    both = make_reward(read_rewards("auto*2,tags(think)"))(["?"] * 4, replies, columns)
    assert [verdict.score for verdict in both] == [2, 2, 0, 3]
    assert both[3].parts == {"auto": 1.0, "tags": 1.0}


@pytest.mark.parametrize("text", ["evil.py:run", "auto", "by_source", "rm(tiny)", "nothing"])
def test_data_cannot_name_a_file_or_a_model(text: str) -> None:
    with pytest.raises(ValueError, match="the column 'verifier' of a row is .*must be one of .*answer_list"):
        make_reward(read_rewards("auto"))(["?"], ["x"], {"verifier": [text]})


def test_a_row_that_says_nothing_is_answered() -> None:
    with pytest.raises(ValueError, match="auto cannot tell how to verify a row with the columns prompt, x"):
        make_reward(read_rewards("auto"))(["?"], ["y"], {"x": [1]})
    with pytest.raises(ValueError, match="the answer 'Berlin' of a row is none of its options"):
        make_reward(read_rewards("auto"))(["?"], ["y"], {"answer": ["Berlin"], "choices": [["Rome", "Paris"]]})


def test_programs_and_answers_in_one_batch() -> None:
    """Programs run in their own boxes, beside answers that the worker compares."""
    replies = [f"```python\ndef add(a, b):\n    return a {sign} b\n```" for sign in "+-"]
    columns = {
        "data_source": ["mbpp", "mbpp", "gsm8k"],
        "test_list": [["assert add(1, 2) == 3"], ["assert add(1, 2) == 3"], None],
        "answer": [None, None, "5"],
    }
    found = make_reward(read_rewards("auto"))(["?"] * 3, [*replies, "#### 5"], columns)
    assert [verdict.score for verdict in found] == [1, 0, 1]


def test_verifiers_need_no_torch() -> None:
    code = "import sys, burnish.verifiers.families\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
