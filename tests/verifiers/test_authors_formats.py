"""Replies and rows in the forms of the papers' own releases: the right ones get the authors' value, wrong ones do not.

Rebuilt from the released tests, prompts and converters: facebookresearch/swe-rl, Table-R1/Table-R1, LLM360/Reasoning360
(Guru), TIGER-AI-Lab/AceCoder.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from burnish.core.call_syntax import read_call
from burnish.core.task import Verdict
from burnish.reward_functions.resolve import make_reward, read_rewards
from burnish.verifiers.table import build_check


def score(call: str, reply: str, **row: Any) -> float:
    read = read_call(call)
    assert read is not None
    return build_check(read)({"prompt": "", **row}, reply).score


def rewarded(rows: list[dict[str, Any]], replies: list[str], reward: str = "auto") -> list[Verdict]:
    """The verdicts on rows of a dataset, as in a run."""
    columns = {name: [row.get(name) for row in rows] for name in {key for row in rows for key in row}}
    return make_reward(read_rewards(reward))(["?"] * len(rows), replies, columns)


# ----------------------------------------------------------------------------------------------------------- SWE-RL

BEFORE = {
    "a.py": "def twice(x):\n    return 2 * x\n\ndef half(x):\n    return x / 2",
    "b.py": "def ordered(items):\n    return sorted(items)",
}
AFTER = {
    "a.py": "def twice(x: int) -> int:\n    return 2 * x\n\ndef half(x: float) -> float:\n    return x / 2",
    "b.py": "def ordered(items: list) -> list:\n    return sorted(items)",
}
TWICE = ("a.py", "def twice(x):", "def twice(x: int) -> int:")
HALF = ("a.py", "def half(x):", "def half(x: float) -> float:")
ORDERED = ("b.py", "def ordered(items):", "def ordered(items: list) -> list:")
NEW = ("c.py", "", "# later")


def solution(*edits: tuple[str, str, str], fence: str = "```") -> str:
    """The authors' form: a block of its own for each edit, inside <solution>."""
    blocks = [
        f"{fence}\n### {path}\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```" for path, old, new in edits
    ]
    return "\n<think>\nplain\n</think>\n<solution>\n" + "\n\n".join(blocks) + "\n</solution>\n"


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        (solution(TWICE, HALF, ORDERED), 1.0),
        (solution(TWICE, HALF, ORDERED, fence="```python"), 1.0),
        (solution(NEW), 0.0),
        (solution(NEW, ("c.py", "# later", 'print("now")'), ORDERED), 1 / 3),
        (solution(ORDERED), 1 / 2),
        ("\n<think>\nplain\n</think>\n<solution>\n", -1.0),
        (solution(ORDERED).replace(">>>>>>> REPLACE\n", ""), -1.0),
        (solution(("a.py", "return 2 * x", "return 3 * x")), -1.0),  # the search text does not begin its line
        (solution(("d.py", "something", "else")), -1.0),
        (solution(("a.py", "def twice(x):", "def twice(x):")), -1.0),
        (solution(ORDERED).replace("plain", ""), -1.0),
        (solution(ORDERED) + "<solution></solution>", -1.0),
        (solution().replace("<solution>\n", "<solution>\nNothing to do."), -1.0),
    ],
)
def test_swe_rl_has_the_values_of_the_released_tests(reply: str, value: float) -> None:
    assert score("swe_rl", reply, files=BEFORE, new_files=AFTER) == pytest.approx(value)


def test_swe_rl_writes_a_new_file_that_is_right() -> None:
    right = {**BEFORE, "c.py": "# later"}
    assert score("swe_rl", solution(NEW), files=BEFORE, new_files=right) == 1
    assert 0 < score("swe_rl", solution(("c.py", "", "# never")), files=BEFORE, new_files=right) < 1
    last = solution(("b.py", "    return sorted(items)", "    return items"))
    shorter = {**BEFORE, "b.py": "def ordered(items):\n    return items"}
    assert score("swe_rl", last, files=BEFORE, new_files=shorter) == 1, "a last line without an end"


# --------------------------------------------------------------------------------------------------------- Table-R1


def table(answer: str, fence: str = "```json\n{}\n```") -> str:
    return f"<think>x</think>\n<answer>\n{fence.replace('{}', answer)}\n</answer>"


@pytest.mark.parametrize(
    ("reply", "truth", "value"),
    [
        (table('{"answer": ["5", "3"]}'), ["3", "5"], 2.0),
        (table('{"answer": ["3.004", "5"]}'), ["3", "5"], 2.0),
        (table('{"answer": ["1,234.5"]}'), ["1234.5"], 2.0),
        (table('{"answer": [5, 3]}'), ["3", "5"], 1.0),  # not texts: the accuracy alone
        (table('{"answer": ["5", "3"]}', "{}"), ["3", "5"], 1.0),  # no block
        (table('["5", "3"]', "{}"), ["3", "5"], 0.0),  # the bare list
        (table('["5", "3"]'), ["3", "5"], 0.0),
        (table('{"answer": ["5"]}'), ["3", "5"], 1.0),
        (table('{"answer": ["5", "5", "3"]}'), ["3", "5"], 1.0),
        (table('{"answer": ["3.02", "5"]}'), ["3", "5"], 1.0),
        (table('{"answer": []}'), ["3"], 0.0),
        ('```json\n{"answer": ["3"]}\n```', ["3"], 1.0),
        (table('{"answer": ["3"]}') + " done", ["3"], 1.0),
        ("<think>x</think><answer>3</answer>", ["3"], 0.0),
    ],
)
@pytest.mark.parametrize("source", ["WTQ", "HiTab"])
def test_table_r1_wants_json_in_a_block(reply: str, truth: list[str], value: float, source: str) -> None:
    assert score("table_r1", reply, answer=truth, data_source=source) == value


@pytest.mark.parametrize(("said", "value"), [("entailed", 2.0), ("refuted", 1.0), ("unknown", 0.0)])
def test_table_r1_reads_labels(said: str, value: float) -> None:
    assert score("table_r1", table(f'{{"answer": "{said}"}}'), answer=["entailed"], data_source="TabFact") == value


def test_table_r1_reads_free_text() -> None:
    text = "The team won four of its last six games."
    row = {"answer": [text], "data_source": "FeTaQA"}
    assert score("table_r1", table(json.dumps({"answer": text})), **row) == pytest.approx(2)
    assert 1 < score("table_r1", table('{"answer": "The team won games."}'), **row) < 1.7
    assert score("table_r1", text, **row) == pytest.approx(1), "no JSON: all of it, without the format"


def test_a_row_of_table_r1_in_a_run() -> None:
    row = {"data_source": "WTQ", "reward_model": {"ground_truth": ["3", "5"], "style": "rule"}}
    right, bad = table('{"answer": ["5", "3"]}'), table('{"answer": ["5", "4"]}')
    assert [one.score for one in rewarded([row, row], [right, bad], "table_r1")] == [2, 1]


# ------------------------------------------------------------------------------------------------------------- Guru


def verl(source: str, truth: Any, **extra: Any) -> dict[str, Any]:
    return {"data_source": source, "reward_model": {"style": "rule", "ground_truth": truth}, **extra}


BIRDS = ["raven", "hawk", "owl"]
ZEBRA = {"header": ["House", "Pet"], "rows": [["1", "cat"], ["2", "fox"], ["3", "dog"]]}
NAMED = str({"header": ["Position", "Pet"], "rows": [["1", "cat"], ["2", "dog"], ["3", "fox"]]})
GRID = [[1, 0], [0, 2], [3, 3]]
INPUT = '"input": {"preorder": "[97]", "inorder": "[97, 4]"}'


@pytest.mark.parametrize(
    ("row", "reply", "value"),
    [
        (verl("simulation__codeio", '"output": {"result": 42}'), '```json\n{"output": {"result": 42}}\n```', 1),
        (verl("simulation__codeio", '"output": {"result": 42}'), '```json\n{"output": {"result": 43}}\n```', 0),
        (verl("simulation__codeio", '"output": {"answer": "true"}'), '```json\n{"answer": true}\n```', 1),
        (verl("simulation__codeio", INPUT), '```json\n{"preorder": "[97]", "inorder": [97, 4]}\n```', 1),
        (verl("simulation__codeio", INPUT), '```json\n{"preorder": "[97]"}\n```', 0),
        (verl("simulation__codeio", '"output": 7'), 'So it is \\boxed{"output": 7}', 1),
        (verl("simulation__codeio", '"output": 7'), "It is 7", 0),
        (verl("logic__ordering_puzzle", BIRDS), "<answer> ['raven', 'hawk', 'owl'] </answer>", 1),
        (verl("logic__ordering_puzzle", BIRDS), "<answer>[Raven, Hawk, Owl]</answer>", 1),
        (verl("logic__ordering_puzzle", BIRDS), '<answer>["raven", "hawk", "owl"]</answer>', 1),
        (verl("logic__ordering_puzzle", BIRDS), "<answer> ['hawk', 'raven', 'owl'] </answer>", 0),
        (verl("logic__ordering_puzzle", BIRDS), "<answer> ['raven', 'hawk'] </answer>", 0),
        (verl("logic__zebra_puzzle", ZEBRA), f"<answer> {ZEBRA} </answer>", 1),
        (verl("logic__zebra_puzzle", ZEBRA), f"<answer>{json.dumps(ZEBRA)}</answer>", 1),
        (verl("logic__zebra_puzzle", ZEBRA), f"<answer>{NAMED}</answer>", 4 / 6),
        (verl("logic__zebra_puzzle", ZEBRA), "<answer>{'rows': [['1', 'cat']]}</answer>", 0),
        (verl("logic__zebra_puzzle", ZEBRA), "<answer>the cat</answer>", 0),
        (verl("logic__arcagi1", GRID), "<answer>\n[[1, 0],\n [0, 2], [3, 3]]\n</answer>", 1),
        (verl("logic__arcagi2", GRID), "<answer>The grid is [[1, 0], [0, 2], [3, 3]].</answer>", 1),
        (verl("simulation__barc", GRID), "<answer>[[1, 0], [0, 2], [3, 4]]</answer>", 0),
        (verl("logic__arcagi2", GRID), "<answer>[[1, 0], [0, 2]]</answer>", 0),
        (verl("stem__web", "0.5 mol"), "Thus \\boxed{0.5 mol}.", 1),
        (verl("stem__web", "0.5 mol"), "Thus \\boxed{5 mol}.", 0),
        (verl("stem__supergpqa", "C"), "\\boxed{C}", 1),
        (verl("stem__supergpqa", "C"), "\\boxed{D}", 0),
        (verl("table__hitab", "12.5|3"), "\\boxed{3|12.5}", 1),
        (verl("table__hitab", "12.5|3"), "\\boxed{3}", 0),
        (verl("logic__graph_logical", "kqp"), "<answer>KQP</answer>", 1),
        (verl("math__merged_deduped", "72"), "\\boxed{72}", 1),
    ],
)
def test_rows_of_guru(row: dict[str, Any], reply: str, value: float) -> None:
    (found,) = rewarded([row], [reply])
    assert not found.failed and found.score == pytest.approx(value), found.reason


PROGRAM = "```python\nclass Solution:\n    def add(self, xs: List[int]) -> int:\n        return sum(xs){}\n```"


def test_programs_of_guru_and_acecode_run_their_tests() -> None:
    functional = "def check(add):\n    assert add([1, 2]) == 3\n    assert add([]) == 0\n\ncheck(Solution().add)"
    leetcode = verl(
        "codegen__leetcode2k",
        json.dumps({"functional": functional}),
        extra_info={"prefix": "from typing import List\n", "split": "train"},
    )
    mbpp = verl("codegen__mbpp", json.dumps({"functional": "assert twice(2) == 4\nassert twice(-1) == -2\n"}))
    stdin = verl("codegen__taco", json.dumps({"inputs": ["3\n", "5\n"], "outputs": ["6", "10\n"]}))
    ace = {"test_cases": ["assert twice(2) == 4", "assert twice(0) == 0", "assert twice(-3) == -6"]}
    twice = "```python\ndef twice(x):\n    return {} * x\n```"
    printed = "```python\nprint({} * int(input()))\n```"
    rows = [leetcode, leetcode, mbpp, mbpp, stdin, stdin, ace, ace]
    replies = [PROGRAM.format(""), PROGRAM.format(" + 1")]
    replies += [text.format(k) for text in (twice, printed, twice) for k in (2, 3)]
    found = rewarded(rows, replies)
    assert [one.score for one in found] == [1, 0] * 4, [one.reason for one in found]
    listed = [{"test_cases": [{"input": "3\n", "output": "6"}]}, {"test_cases": {"inputs": ["3\n"], "outputs": ["6"]}}]
    found = rewarded([*listed, *listed], [printed.format(k) for k in (2, 2, 3, 3)])
    assert [one.score for one in found] == [1, 1, 0, 0]
    only = rewarded([ace, ace], [twice.format(2), twice.format(0)], "acecoder(share=True)")
    assert [one.score for one in only] == pytest.approx([1, 1 / 3])
