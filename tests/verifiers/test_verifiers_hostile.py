"""Hostile replies against all verifiers, with a fixed seed: none may take long, and none may be rewarded.

A reply is rewarded if it counts as correct, or gets more than half of what the right reply gets (more than MOST where
spoilt right replies deserve a part: tags, instructions, letters, words).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from burnish.core.call_syntax import read_call
from burnish.reward_functions.resolve import make_reward, read_rewards
from burnish.verifiers.table import build_check, load_verifiers

SECONDS = 3.0  # of CPU time for one reply; the worker's limit is 10
COUNT = 2000
MOST = {"tag_count": 0.75, "instructions": 0.67, "edit_similarity": 0.75, "rewriting": 0.75}

HOUSES = {"header": ["House", "Pet"], "rows": [["1", "cat"], ["2", "dog"], ["3", "fox"]]}
CALLS = [{"name": "weather", "arguments": {"city": "Paris", "days": 3}}]
FILES = {"a.py": "one\ntwo\nthree\n"}
EDIT = "<think>x</think><answer>### a.py\n<<<<<<< SEARCH\ntwo\n=======\n2\n>>>>>>> REPLACE\n</answer>"
SOURCE = "the quick brown fox jumps over the lazy dog"
SENTENCE = "the committee postponed the vote until next spring"
ASKED = [
    {"id": "title"},
    {"id": "end_checker", "end_phrase": "that is all"},
    {"id": "number_bullet_lists", "num_bullets": 2},
]

CASES: dict[str, tuple[str, dict[str, Any], str]] = {  # verifier -> (call, row, the right reply)
    "math": ("math", {"answer": "1234.5"}, "#### 1,234.5"),
    "exact": ("exact", {"answer": "Montevideo"}, "Montevideo"),
    "exact_match": ("exact_match", {"answer": ["Montevideo"]}, "Answer: Montevideo"),
    "f1": ("f1", {"answer": SENTENCE}, SENTENCE),
    "rouge": ("rouge", {"answer": SENTENCE}, SENTENCE),
    "bleu": ("bleu", {"answer": SENTENCE}, SENTENCE),
    "edit_similarity": ("edit_similarity", {"answer": SENTENCE}, SENTENCE),
    "choice": ("choice", {"answer": "C", "choices": ["oak", "elm", "ash"]}, "The answer is C"),
    "tags": ("tags('plan,result')", {}, "<plan>a</plan><result>b</result>"),
    "tag_count": ("tag_count('think,result')", {}, "<think>a</think><result>b</result>"),
    "regex": (r"regex('order-[0-9]{4}-[a-f]{2}', whole=True)", {}, "order-1234-ab"),
    "json_format": ("json_format('city,population')", {}, '{"city": "Rome", "population": 3}'),
    "json_equal": ("json_equal", {"answer": [[1, 2], [3, 4]]}, "[[1, 2], [3, 4]]"),
    "zebra": ("zebra", {"answer": HOUSES}, json.dumps(HOUSES)),
    "ordering": ("ordering", {"answer": ["raven", "hawk", "owl"]}, "['raven', 'hawk', 'owl']"),
    "grid": ("grid", {"answer": [[1, 2], [3, 4]]}, "<answer>\n[[1, 2],\n [3, 4]]</answer>"),
    "codeio": ("codeio", {"answer": '"output": {"x": [1, 2]}'}, '```json\n{"output": {"x": [1, 2]}}\n```'),
    "answer_list": ("answer_list", {"answer": ["Rome", "1,234"]}, '["1234", "Rome"]'),
    "table_r1": (
        "table_r1",
        {"answer": ["Rome", "7"]},
        '<think>x</think><answer>```json\n{"answer": ["7", "Rome"]}\n```</answer>',
    ),
    "tool_calls": ("tool_calls", {"answer": CALLS}, json.dumps(CALLS)),
    "swe_rl": ("swe_rl", {"files": FILES, "new_files": {"a.py": "one\n2\nthree\n"}}, EDIT),
    "logical_equivalence": (
        "logical_equivalence(rename=False, partial=False)",
        {"answer": "∀x (Cat(x) ∧ Old(x) → Sleepy(x))"},
        "∀x (Cat(x) ∧ Old(x) → Sleepy(x))",
    ),
    "world_state": ("world_state(partial=1)", {"answer": {"a": 1, "b": {"c": "x"}}}, '{"a": 1, "b": {"c": "x"}}'),
    "line_f1": ("line_f1", {"answer": "alpha one\nbeta two"}, "alpha one\nbeta two"),
    "citations": ("citations", {"sources": ["d1", "d2"], "supports": ["d2"]}, "It is so [d2]."),
    "instructions": ("instructions", {"constraints": ASKED}, "<<A title>>\n* one\n* two\nThat is all"),
    "constraint": ("constraint('end_checker', end_phrase='that is all')", {}, "That is all"),
    "rewriting": ("rewriting", {"source": SOURCE}, "the quick brown fox leaps over a lazy dog"),
}

HOSTILE = (
    "",
    " \n\t ",
    "\0",
    "\ud800",
    "\u202e\u200b\ufeff",
    "nan",
    "-inf",
    "1e999",
    "1e-999999999",
    "0/0",
    "9" * 100_000,
    "1/" * 5_000 + "1",
    "0x" + "f" * 5_000,
    "None",
    "True",
    "[]",
    "{}",
    '""',
    "[NaN, Infinity]",
    '{"a": 1e999}',
    "[" * 200_000,
    "{" * 200_000,
    "(" * 4_999,
    "[[" * 30_000 + "]]" * 30_000,
    '{"a":' * 30_000 + "1" + "}" * 30_000,
    '"' * 100_001,
    "\\" * 100_001,
    "a" * 1_000_000,
    "a " * 90_000,
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
    "\n" * 100_000,
    " " * 100_000 + "x",
    "|" * 100_000,
    "** " * 30_000,
    "***\n" * 25_000,
    "* x\n" * 25_000,
    ". " * 50_000,
    '."' * 50_000,
    "```\n" * 25_000,
    "```json\n{}\n```\n" * 5_000,
    "<think>" * 20_000,
    "</think>" * 20_000,
    "<think>" * 9_000 + "</think>" * 9_000,
    "<answer>" * 20_000,
    "<answer></answer>" * 10_000,
    "<tool_call>" * 18_000,
    "<tool_call>" * 8_000 + "</tool_call>" * 8_000,
    "<tool_call>{}</tool_call>" * 7_000,
    "### a.py\n<<<<<<< SEARCH\n" * 5_000,
    "### a.py\n<<<<<<< SEARCH\n=======\n>>>>>>> REPLACE\n" * 3_000,
    "<think>x</think><answer>### a.py\n<<<<<<< SEARCH\nt\n=======\n" + "ab" * 50_000 + "\n>>>>>>> REPLACE\n</answer>",
    "\\boxed{" * 20_000,
    "\\boxed{" * 20_000 + "}" * 20_000,
    "\\boxed{A}\\boxed{B}\\boxed{C}\\boxed{D}",
    "answer:" * 20_000,
    "#### " * 20_000,
    "(A) (B) (C) (D)",
    "The answer is A or B or C",
    "¬" * 4_999,
    "P ∧ " * 1_200 + "P",
    "∀x " * 1_600 + "P(x)",
    " ∧ ".join(f"P{i}(x)" for i in range(400)),
    "P ∧ ¬P",
    "[d1][d2][d3][d4]",
    "[" + ",".join(["d1"] * 20_000) + "]",
    "[d9].\n" * 8_000,
    "<<" * 40_000,
    "P.S." * 20_000,
    "__import__('os').system('true')",
    "{{7*7}} ${7*7} %s%n",
)
LOOKALIKES = str.maketrans("aeopcxyABCEHKMOPTX0123456789", "аеорсхуАВСЕНКМОРТХ٠١٢٣٤٥٦٧٨٩")


def attacks(right: str, dice: random.Random) -> Iterator[str]:
    """Hostile replies, and right ones that are spoilt."""
    whole, right = right, right.rpartition("</think>")[2]
    yield f"<think>{right}"
    yield f"<think>{right}</think>"
    yield f"<think>{right}</think> I do not know"
    yield whole.translate(LOOKALIKES)
    yield whole[: len(whole) // 3]
    yield whole[::-1]
    while True:
        for text in dice.sample(HOSTILE, len(HOSTILE)):
            form = dice.randrange(6)
            if form == 0:
                yield f"<think>{right}</think>{text}"
            elif form == 1:
                yield f"<think>x</think><answer>{text}</answer>"
            elif form == 2:
                yield text + text[: dice.randrange(len(text) + 1)]
            elif form == 3:
                yield f"```\n{text}\n```"
            else:
                yield text


def check_of(call: str) -> Any:
    read = read_call(call)
    assert read is not None
    return build_check(read)


@pytest.mark.parametrize("name", CASES)
def test_hostile_replies_are_quick_and_earn_nothing(name: str) -> None:
    assert name in load_verifiers()
    call, row, right = CASES[name]
    check, row = check_of(call), {"prompt": "", **row}
    best = check(row, right)
    assert best.correct and best.score > 0, best.reason
    replies = attacks(right, random.Random(name))
    for _ in range(COUNT // len(CASES)):
        reply = next(replies)
        started = time.process_time()
        found = check(row, reply)
        took = time.process_time() - started
        assert took < SECONDS, f"{took:.1f} s for {reply[:80]!r}"
        assert not found.correct, f"{found} for {reply[:80]!r}"
        assert found.score <= best.score * MOST.get(name, 0.5), f"{found} for {reply[:80]!r}"


def test_the_right_reply_is_right_in_the_sandbox_and_hostile_ones_are_not() -> None:
    for name, (call, row, right) in CASES.items():
        replies = [right, *(next(attacks(right, random.Random(k))) for k in range(2)), "a" * 1_000_000]
        columns = {key: [value] * len(replies) for key, value in row.items()}
        found = make_reward(read_rewards(call))(["?"] * len(replies), replies, columns)
        assert [verdict.correct for verdict in found] == [True, False, False, False], (name, found)
        assert not any(verdict.failed for verdict in found)
