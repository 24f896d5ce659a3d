"""Verifiers of texts, choices and formats, by hand-made cases; the similarities against slow obvious versions."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from burnish.core.call_syntax import read_call
from burnish.verifiers import similarity
from burnish.verifiers.checks import BadRow
from burnish.verifiers.final_answer import final_answer, spoken
from burnish.verifiers.table import build_check


def score(call: str, reply: str, **row: Any) -> float:
    """The score of a reply by a verifier in this process."""
    read = read_call(call)
    assert read is not None
    return build_check(read)({"prompt": "", **row}, reply).score


# ------------------------------------------------------------------------------------------------------ the answer


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("plain", "plain"),
        ("<think>5</think> 6", "6"),
        ("5 </think> 6", "6"),
        ("<think>5", ""),
        ("<think>1</think>2<think>3", ""),
        ("<think>1</think><answer>2</answer>", "2"),
        ("<answer>1</answer> or <answer>2</answer> .", "2"),
        ("<think><answer>5</answer></think> no", "no"),
        ("</think></think>", ""),
    ],
)
def test_what_is_said_follows_the_thinking(reply: str, said: str) -> None:
    assert spoken(reply) == said


def test_an_answer_inside_the_thinking_is_none() -> None:
    hidden = r"<think>It is \boxed{5}.</think> I do not know."
    assert final_answer(hidden, "5") != "5" and score("math", hidden, answer="5") == 0
    assert score("math", r"<think>\boxed{4}</think> \boxed{5}", answer="5") == 1
    assert score("math", r"\boxed{5} or \boxed{6}", answer="5") == 0, "the last one counts"
    assert score("exact", "<think>x</think><answer> Paris </answer>", answer="paris") == 1


@pytest.mark.parametrize("reply", ["", "nan", "inf", "1e999", "-", "\u0665", "５", "<think>5", "5 6"])
def test_these_are_not_five(reply: str) -> None:
    assert score("math", reply, answer="5") == 0


@pytest.mark.parametrize(("reply", "answer"), [("1,234", "1234"), ("50%", "0.5"), ("$12.50", "12.5"), ("1/4", "0.25")])
def test_separators_and_signs_do_not_matter(reply: str, answer: str) -> None:
    assert score("math", reply, answer=answer) == 1


# ----------------------------------------------------------------------------------------------------- similarities


def slow_distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


def slow_subsequence(a: str, b: str) -> int:
    row = [0] * (len(b) + 1)
    for x in a:
        before = 0
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], max(row[j], row[j - 1], before + (x == y))
    return row[-1]


def test_distances_in_bits_equal_those_by_tables() -> None:
    dice = random.Random(0)
    for _ in range(300):
        a, b = ("".join(dice.choices("abc", k=dice.randrange(12))) for _ in range(2))
        assert similarity.edit_distance(a, b) == slow_distance(a, b), (a, b)
        assert similarity.common_subsequence(a, b) == slow_subsequence(a, b), (a, b)


def test_f1_and_exact_match_are_squads() -> None:
    """Said {eiffel, tower, paris}, right {eiffel, tower}: P 2/3, R 1, F1 0.8."""
    assert score("f1", "the Eiffel Tower, Paris", answer="Eiffel tower") == pytest.approx(0.8)
    assert score("f1", "the Eiffel Tower, Paris", answer=["nothing", "Eiffel tower"]) == pytest.approx(0.8)
    assert score("exact_match", "The Eiffel Tower.", answer="eiffel tower") == 1
    assert score("exact_match", "Answer: the Eiffel Tower.", answer="eiffel tower") == 1
    assert score("exact_match", "a", answer="The") == 0, "articles alone are no empty answer"
    assert score("exact_match", "", answer="A") == score("f1", "", answer="A") == 0
    assert score("f1", "word " * 30_000 + "paris", answer="paris") < 1e-4
    with pytest.raises(BadRow, match="empty 'answer'"):
        score("f1", "x", answer=" ")


def test_rouge_by_hand() -> None:
    """a b c d against a c d e f: 3 common words of 4 and 5, one bigram of 3 and 4, subsequence a c d."""
    said, right = "a b c d", "a c d e f"
    assert score("rouge(kind='1')", said, answer=right) == pytest.approx(2 * 3 / 9)
    assert score("rouge(kind='2')", said, answer=right) == pytest.approx(2 * 1 / 7)
    assert score("rouge", said, answer=right) == pytest.approx(2 * 3 / 9)
    assert score("rouge", "d c b a", answer=said) == pytest.approx(2 * 1 / 8)


def test_bleu_by_hand() -> None:
    """The cat sat (3) against the cat sat down (4): p1 = p2 = p3 = 1, no 4-grams, brevity e^(1 - 4/3)."""
    assert score("bleu", "the cat sat", answer="the cat sat down") == pytest.approx(math.exp(-1 / 3))
    expected = math.exp((math.log(3 / 4) + math.log(1 / 3) + math.log(0.5 / 2) + math.log(0.25 / 1)) / 4)
    assert score("bleu", "a b x c", answer="a b c d") == pytest.approx(expected)
    assert score("bleu", "x y", answer="a b") == 0 == score("bleu", "", answer="a b")
    assert score("bleu", "a b c d", answer=["z", "a b c d"]) == pytest.approx(1)


def test_edit_similarity_by_hand() -> None:
    """kitten -> sitting: 3 edits of 7."""
    assert score("edit_similarity", "kitten", answer="sitting") == pytest.approx(1 - 3 / 7)
    assert score("edit_similarity", "x" * 30_000, answer="x") == 0


# ----------------------------------------------------------------------------------------------------------- choice

CITIES = ["Rome", "Paris", "New York", "York"]


@pytest.mark.parametrize(
    "reply",
    [
        "B",
        "b",
        "(B)",
        " **B.** ",
        "B. Paris",
        "B) Paris is the capital",
        "The answer is B",
        "The answer is (B) because A is Rome.",
        "Answer: b",
        r"So \boxed{B}",
        r"\boxed{\text{B}}",
        "I would say (B).",
        "It must be **B**, I think.",
        "Paris",
        "It is Paris, of course.",
        "<think>A? C?</think>B",
        "Option A is wrong. The correct option is B.",
        "（B）",
    ],
)
def test_the_choice_is_b(reply: str) -> None:
    assert score("choice", reply, answer="B", choices=CITIES) == 1
    assert score("choice", reply, answer="C", choices=CITIES) == 0


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "A or B",
        "The answer is A or B",
        "The answer is B/C",
        "B. or C.",
        "A. B. C. D.",
        "(A) (B)",
        "**A** **B**",
        "Rome or Paris",
        "A dog barks",
        "a",
        "\u0412",  # Cyrillic
        "Ｂ",
        "Z",
        "<think>B</think>",
        "<think>B",
        "BB",
        "I know that Baris",
        "B" * 100_000,
    ],
)
def test_the_choice_is_not_b(reply: str) -> None:
    assert score("choice", reply, answer="B", choices=CITIES) == 0


def test_the_right_choice_has_many_forms() -> None:
    for answer in ("B", "(b)", 1, "1", "Paris", "B. Paris"):
        assert score("choice", "B", answer=answer, choices=CITIES) == 1, answer
    assert score("choice", "New York", answer="C", choices=CITIES) == 1, "the whole text, though York is in it"
    assert score("choice", "B", answer="B", choices={"label": ["A", "B"], "text": ["x", "y"]}) == 1
    assert score("choice(letters=4)", "E", answer="B") == 0
    with pytest.raises(BadRow, match="none of its options"):
        score("choice", "B", answer="Berlin", choices=CITIES)


# ---------------------------------------------------------------------------------------------------------- formats


@pytest.mark.parametrize(
    ("reply", "strict", "share"),
    [
        ("<think>a</think><answer>b</answer>", 1, 1),
        ("<think>a</think>\n<answer>b</answer>\n", 1, 1),
        ("x <think>a</think><answer>b</answer>", 0, 1),
        ("<think></think><answer>b</answer>", 0, 0.75),
        ("<answer>b</answer><think>a</think>", 0, 0.75),
        ("<think>a<answer>b</answer>", 0, 0.75),
        ("<think>a</think><think>a</think><answer>b</answer>", 0, 0.5),
        ("<think>a</think><answer>b</answer></answer>", 0, 0.75),
        ("<think>a<answer>b</think></answer>", 0, 0.75),
        ("", 0, 0),
        ("<THINK>a</THINK>", 0, 0),
    ],
)
def test_tags_occur_once_and_in_order(reply: str, strict: float, share: float) -> None:
    assert score("tags", reply) == strict
    assert score("tag_count", reply) == share


def test_a_bomb_of_a_pattern_ends() -> None:
    assert score(r"regex('\d{3}-\d{4}')", "call 555-1234 now") == 1
    assert score(r"regex('\d+', whole=True)", "12a") == 0
    assert score("regex('(a+)+b')", "a" * 60) == 0
    with pytest.raises(ValueError, match="not a regular expression"):
        score("regex('(')", "")


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ('{"n": 1}', 1),
        ('```json\n{"n": 2, "tags": ["a"]}\n```', 1),
        ('<think>{</think>{"n": 1}', 1),
        ('{"n": 0}', 0),
        ('{"n": true}', 0),
        ('{"n": 1.5}', 0),
        ('{"n": NaN}', 0),
        ('{"n": 1e999}', 0),
        ('{"n": 1, "n": 2}', 0),
        ('{"n": 1, "m": 2}', 0),
        ('{"n": 1, "tags": ["c"]}', 0),
        ('{"n": 1} and more', 0),
        ("[" * 100_000, 0),
        ('{"n":' * 50_000 + "1" + "}" * 50_000, 0),
        ("9" * 100_000, 0),
        ("", 0),
        ("```\n1\n```\n```\n2\n```", 0),
    ],
)
def test_json_satisfies_a_schema(reply: str, right: float) -> None:
    assert score("json_format", reply, schema=SCHEMA) == right


def test_json_has_keys() -> None:
    assert score("json_format('a, b')", '{"a": 1, "b": null}') == 1
    assert score("json_format('a, b')", '{"a": 1}') == score("json_format('a')", '["a"]') == 0
    with pytest.raises(BadRow, match="the schema keyword 'oneOf' is not known"):
        score("json_format", "1", schema={"oneOf": []})
