"""Verifiers of formulas, tables, states, puzzles and rewritten texts, by hand-made cases."""

from __future__ import annotations

import json
from typing import Any

import pytest

from burnish.core.call_syntax import read_call
from burnish.core.task import Verdict
from burnish.verifiers.checks import BadRow
from burnish.verifiers.formulas import NoFormula, atoms, columns, parse
from burnish.verifiers.logic import agreement
from burnish.verifiers.rewriting import rewriting_score, within
from burnish.verifiers.table import build_check


def verdict(call: str, reply: str, **row: Any) -> Verdict:
    read = read_call(call)
    assert read is not None
    return build_check(read)({"prompt": "", **row}, reply)


def score(call: str, reply: str, **row: Any) -> float:
    return verdict(call, reply, **row).score


# --------------------------------------------------------------------------------------------------------- formulas


def test_columns_of_a_truth_table() -> None:
    """Rows 0..7 from the right: the first atom alternates, the second by twos, the third by fours."""
    assert columns(3) == [0b10101010, 0b11001100, 0b11110000] and columns(0) == []


@pytest.mark.parametrize(
    ("said", "right", "share"),
    [
        ("P ∧ Q", "P ∨ Q", 0.5),  # rows TT and FF
        ("P and Q", "Q & P", 1),
        ("P -> Q", "~P | Q", 1),
        ("P → Q → R", "P → (Q → R)", 1),
        ("P → Q", "Q → P", 0.5),  # equal names are bound to each other
        ("¬(P ∧ Q)", "¬P ∨ ¬Q", 1),
        ("P ⊕ Q", "P <-> ¬Q", 1),
        ("A → B", "P → Q", 1),  # renamed
        ("P ∧ ¬P", "P ∧ Q", 0.75),  # never true
        ("∀x (Cat(x) → Animal(x))", "forall y. Cat(y) => Animal(y)", 1),
        ("∀x, Cat(x) → Animal(x)", "∀y (Cat(y) → Animal(y))", 1),
        ("∀x ∀y R(x, y)", "∀y, x R(y, x)", 1),
        ("∀x ∃y R(x, y)", "∀x ∃y R(y, x)", 0),
        ("∃x P(x)", "∀x P(x)", 0),
        ("¬∀x P(x)", "∃x ¬P(x)", 1),
        ("(∀x P(x)) ∧ (∃x Q(x))", "∀y P(y) ∧ ∃z Q(z)", 1),
        ("a = b", "b == a", 1),
        ("a ≠ b", "¬(a = b)", 1),
    ],
)
def test_share_of_rows_by_hand(said: str, right: str, share: float) -> None:
    assert agreement(parse(said), parse(right)) == share
    assert score("logical_equivalence", said, answer=right) == share


@pytest.mark.parametrize(
    "text",
    [
        "",
        "(",
        "P ∧",
        "P Q",
        "∀",
        "P(x",
        "P()",
        "¬" * 500 + "P",
        "(" * 5000,
        "P & " * 2000,
        "__import__('os')",
        "P; Q",
        "а→",
    ],
)
def test_no_formulas(text: str) -> None:
    assert score("logical_equivalence", text, answer="P ∧ Q") == 0


def test_options_of_equivalence() -> None:
    assert score("logical_equivalence(chance=0.5)", "P ∧ ¬P", answer="P ∧ Q") == 0.5
    assert score("logical_equivalence(partial=False)", "P ∧ ¬P", answer="P ∧ Q") == 0
    assert score("logical_equivalence(rename=False)", "A → B", answer="P → Q") < 1
    assert score("logical_equivalence(quantifiers=False)", "∃x P(x)", answer="∀x P(x)") == 1
    assert score("logical_equivalence", "<think>P ∧ Q</think> I do not know", answer="P ∧ Q") == 0
    assert score("logical_equivalence", "So:\n```\nFOL: P ∧ Q\n```", answer="P ∧ Q") == 1
    many = " ∧ ".join(f"P{i}" for i in range(13))
    assert score("logical_equivalence", many, answer="P") == 0
    assert len(atoms(parse(" ∨ ".join(["P", "Q"] * 500)))) == 2
    with pytest.raises(NoFormula):
        parse("x" * 6000)
    with pytest.raises(BadRow, match="no formula"):
        score("logical_equivalence", "P", answer="P ∧")


# ----------------------------------------------------------------------------------------------------------- tables


def answered(text: str) -> str:
    return f"<think>hm</think>\n<answer>{text}</answer>"


def boxed(value: str) -> str:
    return answered(f'```json\n{{"answer": {value}}}\n```')


def test_table_r1_by_hand() -> None:
    """Format 1 + accuracy 1: {5, 3.004} is {3, 5} within 0.01; {5} has the format alone."""
    assert score("table_r1", boxed('["5", "3.004"]'), answer=[3, 5]) == 2
    assert score("table_r1", boxed('["1,234", "5"]'), answer="[5, 1234]") == 2
    assert score("table_r1", boxed('["5"]'), answer=[3, 5]) == 1
    assert score("table_r1", boxed('["3", "3", "5"]'), answer=[3, 5]) == 1, "a multiset"
    assert score("table_r1", boxed('["Rome", "Paris"]'), answer=["Paris", "Rome"]) == 2
    assert score("table_r1", boxed('["rome", "Paris"]'), answer=["Paris", "Rome"]) == 1, "letter by letter"
    assert score("table_r1", "[3, 5]", answer=[3, 5]) == 0 == score("table_r1", "<think>x</think>", answer=[3])
    assert score("table_r1('label')", boxed('"entailed"'), answer="entailed") == 2
    assert score("table_r1('short')", boxed('"refuted"'), answer=["entailed"], table_kind="label") == 1
    assert score("table_r1('label')", boxed('"perhaps"'), answer="entailed") == 0, "no label"
    free = score("table_r1('free')", boxed('"the cat sat down"'), answer="the cat sat down")
    assert free == pytest.approx(2)
    assert score("table_r1('free')", "the cat sat down", answer=["the cat sat down"]) == pytest.approx(1)
    assert score("table_r1(format_weight=0)", boxed('["x"]'), answer="x") == 1
    with pytest.raises(BadRow, match="table_kind"):
        score("table_r1", "x", answer="x", table_kind="other")


@pytest.mark.parametrize(
    ("reply", "answer", "right"),
    [
        ("1,234 | 50%", ["50", "1234"], 1),
        ('["Paris", "Rome"]', ["rome", "the paris"], 1),
        ("Answer: Paris", "Paris", 1),
        ("Paris | Paris", ["Paris"], 0),
        ("", ["Paris"], 0),
        ("NaN", ["1"], 0),
        ("[NaN]", ["1"], 0),
        ("1e999", ["1"], 0),
        ("[" * 100_000, ["1"], 0),
        ("| " * 90_000, ["1"], 0),
        ("Paris\u200b x", ["Paris"], 0),
    ],
)
def test_answers_are_multisets(reply: str, answer: Any, right: float) -> None:
    assert score("answer_list", reply, answer=answer) == right


# ---------------------------------------------------------------------------------------------------- world models

BEFORE = {"pot": {"contains": "water", "hot": False}, "score": 0}


def test_states_by_hand() -> None:
    """Right changes: hot, score. Said: hot and contains: P 1/2, R 1/2, F1 1/2."""
    after = {"pot": {"contains": "water", "hot": True}, "score": 1}
    row = {"answer": after, "state": json.dumps(BEFORE)}
    assert verdict("world_state", json.dumps(after), **row) == Verdict(1.0, True)
    assert score("world_state", "<think>x</think>```json\n" + json.dumps(after) + "\n```", **row) == 1
    half = {"pot": {"contains": "soup", "hot": True}, "score": 0}
    assert score("world_state", json.dumps(half), **row) == 0
    assert score("world_state(partial=1)", json.dumps(half), **row) == pytest.approx(0.5)
    assert score("world_state", json.dumps(BEFORE), answer=BEFORE, state=BEFORE) == 1, "nothing changed"
    ones = json.dumps({"pot": {"contains": "water", "hot": 1}, "score": 1})
    assert score("world_state", ones, **row) == 0, "1 is not true"
    assert score("world_state", '{"pot": {"contains": "water", "hot": true}}', **row) == 0, "the score is gone"
    for bad in ("", "{", '{"a":' * 5000 + "1" + "}" * 5000, json.dumps(list(range(30_000)))):
        assert score("world_state(partial=1)", bad, **row) == 0


def test_lines_by_hand() -> None:
    """1 of 2 lines is right, of 3: P 1/2, R 1/3, F1 0.4."""
    assert score("line_f1", "a\nx", answer="a\nb\nc") == pytest.approx(0.4)
    assert score("line_f1", "", answer="") == 1 and score("line_f1", "", answer="a") == 0
    assert score("line_f1", "a\n" * 50_000, answer="a\nb") < 1e-4, "a multiset"


# ---------------------------------------------------------------------------------------------------------- puzzles

HOUSES = {"header": ["House", "Color", "Pet"], "rows": [["1", "red", "cat"], ["2", "blue", "dog"]]}


def test_zebra_counts_cells() -> None:
    """One of six cells is wrong."""
    said = {**HOUSES, "rows": [["1", "Red", "cat"], ["2", "blue", "fox"]]}
    assert score("zebra", json.dumps(said), answer=HOUSES) == pytest.approx(5 / 6)
    assert verdict("zebra", json.dumps(HOUSES), answer=json.dumps(HOUSES)) == Verdict(1.0, True)
    extra = {**HOUSES, "rows": [*HOUSES["rows"], ["3", "x", "y"]]}
    for bad in ("", "[]", "{}", json.dumps(extra), '{"header": ["a"], "rows": [[1, 2]]}', '{"header": [], "rows": []}'):
        assert score("zebra", bad, answer=HOUSES) == 0
    assert score("zebra", '{"1": {"pet": "cat"}}', answer={"1": {"pet": "cat", "color": "red"}}) == 0.5
    with pytest.raises(BadRow):
        score("zebra", "", answer=[1])


def test_json_values_are_equal() -> None:
    assert score("json_equal", "[[1, 2], [3, 4.0]]", answer=[[1, 2], [3, 4]]) == 1
    assert score("json_equal", '{"a": 1, "b": 2}', answer='{"b": 2, "a": 1}') == 1
    assert score("json_equal", "hello", answer="hello") == 1
    for bad in ("[[1, 2]]", "[[2, 1], [3, 4]]", "", "[[true, 2], [3, 4]]", "[" * 50_000):
        assert score("json_equal", bad, answer=[[1, 2], [3, 4]]) == 0


# -------------------------------------------------------------------------------------------------------- rewriting

SOURCE = "the quick brown fox jumps over the lazy dog"


def test_rewriting_by_hand() -> None:
    """The example of the paper's terms: 0.9, 0.8, 1.0, 0.3 and no repetition: 0.75."""
    assert rewriting_score([0.9, 0.8, 1.0, 0.3], 0.0) == pytest.approx(0.75)
    assert rewriting_score([0.2], 0.5) == 0 and within(0.25, 0.5, 1) == 0.5 and within(2, 0.5, 1) == 0.5
    # 8 of 9 words, all of the source; edits "quick " (6 of 43 characters) more than 0.1: (1 + 1 + 8/9 + 1) / 4
    found = verdict("rewriting", "the brown fox jumps over the lazy dog", source=SOURCE)
    assert found.score == pytest.approx((1 + 1 + 8 / 9 + 1) / 4) and found.correct
    for bad in ("", "xx yy zz aa bb cc dd ee ff", SOURCE, f"  {SOURCE.upper()}.", "<think>the brown fox", "x" * 30_000):
        assert score("rewriting", bad, source=SOURCE) == 0
    assert score("rewriting", "the fox " * 8, source=SOURCE) < 0.2, "it repeats"
    with pytest.raises(ValueError, match="swap them"):
        score("rewriting(shortest=2, longest=1)", "", source=SOURCE)
