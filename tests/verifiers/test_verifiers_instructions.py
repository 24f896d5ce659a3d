"""Verifiers of instructions and citations, by hand-made cases."""

from __future__ import annotations

from typing import Any

import pytest

from burnish.core.call_syntax import read_call
from burnish.core.task import Verdict
from burnish.verifiers.checks import BadRow
from burnish.verifiers.constraints import CONSTRAINTS
from burnish.verifiers.table import build_check


def verdict(call: str, reply: str, **row: Any) -> Verdict:
    read = read_call(call)
    assert read is not None
    return build_check(read)({"prompt": "", **row}, reply)


CASES: list[tuple[str, dict[str, Any], list[str], list[str]]] = [  # name, options, replies that keep it, that do not
    ("keywords:existence", {"keywords": ["cat", "dog"]}, ["Cat and DOG."], ["cat", "cats and dogs", "concatenate dog"]),
    (
        "keywords:frequency",
        {"keyword": "ha", "relation": "at least", "frequency": 2},
        ["ha ha", "HA, ha!"],
        ["ha", "haha", "hahaha ha"],
    ),
    ("keywords:frequency", {"keyword": "ha", "relation": "less than", "frequency": 2}, ["ha", "x"], ["ha ha"]),
    ("keywords:forbidden_words", {"forbidden_words": ["bad"]}, ["badge"], ["Bad.", "it is bad"]),
    ("keywords:letter_frequency", {"letter": "z", "let_relation": "at least", "let_frequency": 2}, ["Zz"], ["z"]),
    ("language:response_language", {"language": "ru"}, ["Привет, мир"], ["hello", "Привет hello hello", "123"]),
    ("language:response_language", {"language": "ja"}, ["こんにちは世界"], ["hello"]),
    (
        "length_constraints:number_sentences",
        {"relation": "exactly", "num_sentences": 2},
        ["One. Two!", 'He said "yes." Then no'],
        ["One.", "A. B. C.", "3.14 is pi"],
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        ["a\n\nb", "a\n***\nb\n\nc"],
        ["a\nb", "a\n\nb\n\nc"],
    ),
    (
        "length_constraints:number_words",
        {"relation": "at most", "num_words": 3},
        ["one two three", "don't stop-gap"],
        ["a b c d"],
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Then"},
        ["a\n\nthen b", 'a\n\n"Then" b'],
        ["then a\n\nb", "a\n\nthen\n\nb"],
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, ["[name] at [place]"], ["[name]", "[] []"]),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.S."},
        ["x\nP.S. y", "x\nPS: y"],
        ["x", "x P.S. y", "P.S."],
    ),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, ["* a\n- b"], ["* a", "*a\n*b", "- a\n- b\n- c"]),
    ("detectable_format:constrained_response", {}, ["My answer is no."], ["no", "My answer is no. My answer is yes."]),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, ["*a* **b**"], ["*a*", "** **", "***"]),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        ["SECTION 1\na\nSECTION 2\nb"],
        ["SECTION 1", "SUBSECTION 1 SECTION 2"],
    ),
    ("detectable_format:json_format", {}, ["[1]", "```json\n{}\n```"], ["{", "[NaN]", "x ```\n1\n```"]),
    ("detectable_format:title", {}, ["<<Title>>\nx"], ["<<>>", "<< >>", "<Title>"]),
    (
        "combination:two_responses",
        {},
        ["a\n******\nb"],
        ["a", "a\n******\na", "a\n******\nb\n******\nc", "a\n******\n"],
    ),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it."}, ["say it. It."], ["It. say it."]),
    ("startend:end_checker", {"end_phrase": "The end"}, ["x the end", '"x The end"'], ["The end."]),
    ("startend:start_checker", {"start_phrase": "Dear"}, ["Dear me"], ["Oh dear"]),
    ("startend:quotation", {}, ['"hi"'], ["hi", '"', '""', '"hi']),
    (
        "change_case:capital_word_frequency",
        {"capital_relation": "at least", "capital_frequency": 2},
        ["YES and NO"],
        ["Yes NO"],
    ),
    ("change_case:english_capital", {}, ["ALL OF IT."], ["All", "123"]),
    ("change_case:english_lowercase", {}, ["all of it."], ["All", "123"]),
    ("punctuation:no_comma", {}, ["none"], ["a, b", "a，b"]),
]


@pytest.mark.parametrize(("name", "options", "good", "bad"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_constraints(name: str, options: dict[str, Any], good: list[str], bad: list[str]) -> None:
    row = {"instruction_id_list": [name], "kwargs": [{**options, "unrelated": None}]}
    for reply in good:
        assert verdict("instructions", reply, **row) == Verdict(1.0, True), reply
    for reply in [*bad, "", "<think>x"]:
        assert verdict("instructions", reply, **row).score == 0, reply


def test_every_constraint_has_a_case() -> None:
    assert {case[0] for case in CASES} == CONSTRAINTS.keys() and len(CONSTRAINTS) == 26


def test_the_share_of_the_instructions() -> None:
    row = {"constraints": [{"id": "no_comma"}, {"id": "number_words", "relation": "less than", "num_words": 3}]}
    assert verdict("instructions", "a b c", **row).score == 0.5
    assert verdict("instructions(every=True)", "a b c", **row).score == 0
    assert verdict("instructions(every=True)", "a b", **row).score == 1


def test_loose_leaves_out_what_stands_around() -> None:
    row = {"constraints": [{"id": "start_checker", "start_phrase": "Dear"}]}
    assert verdict("instructions", "Sure, here it is:\nDear me", **row).score == 0
    assert verdict("instructions(loose=True)", "Sure, here it is:\nDear me", **row).score == 1
    assert verdict("instructions(loose=True)", "**Dear** me", **row).score == 1
    assert verdict("instructions(loose=True)", "Oh dear", **row).score == 0


def test_one_constraint_for_all_rows() -> None:
    assert verdict("constraint('number_words', relation='exactly', num_words=2)", "a b").score == 1
    assert verdict("constraint(no_comma)", "a, b").score == 0
    for call, why in {
        "constraint('no_coma')": "there is no constraint 'no_coma'",
        "constraint('number_words')": "lacks its option 'num_words'",
        "constraint('number_words', num_words=2, relatoin='exactly')": "has no option 'relatoin'",
        "constraint('number_words', num_words='two')": "must be a whole number",
        "constraint('number_words', num_words=2, relation='about')": "relation 'about' of a constraint is unknown",
        "constraint('response_language', language='de')": "cannot tell 'de'",
    }.items():
        with pytest.raises(ValueError, match=why):
            verdict(call, "")


def test_rows_that_are_wrong_stop_the_run() -> None:
    with pytest.raises(BadRow, match="a row has none"):
        verdict("instructions", "x")
    with pytest.raises(BadRow, match="2 instructions and 1 kwargs"):
        verdict("instructions", "x", instruction_id_list=["no_comma", "no_comma"], kwargs=[{}])
    german = {"instruction_id_list": ["language:response_language", "no_comma"], "kwargs": [{"language": "de"}, {}]}
    with pytest.raises(BadRow, match="cannot tell 'de'"):
        verdict("instructions", "x", **german)
    assert verdict("instructions(unsupported=skip)", "x", **german).score == 1


# -------------------------------------------------------------------------------------------------------- citations

SOURCES = {"1": "...", "2": "...", "3": "..."}


def test_citations_by_their_ids() -> None:
    """Cited {1, 2}, right {1, 3}: P = R = F1 = 1/2."""
    row = {"sources": ["1", "2", "3"], "supports": ["1", "3"]}
    assert verdict("citations", "It is so [1]. And so [2].", **row).score == 0.5
    assert verdict("citations", "It is so [1, 3].", **row) == Verdict(1.0, True)
    for bad in ("", "It is so.", "It is so [1][4].", "<think>[1][3]</think>", "[2]", "[" * 40_000):
        assert verdict("citations", bad, **row).score == 0
    with pytest.raises(BadRow, match="'supports' .* or 'facts'"):
        verdict("citations", "[1]", sources=["1"])


def test_citations_by_facts() -> None:
    """Two of three citations are supported and one of two phrases is stated: P 2/3, R 1/2, F1 4/7."""
    row = {"sources": SOURCES, "facts": {"1": ["born in 1912"], "2": ["died in 1954"]}}
    good = "Turing was born in 1912 [1]. He died in 1954 [2]."
    assert verdict("citations", good, **row) == Verdict(1.0, True)
    reply = "Turing was born in 1912 [1]. He was born in 1912, as said [1]. He was tall [2]."
    assert verdict("citations", reply, **row).score == pytest.approx(4 / 7)
    swapped = "Turing was born in 1912 [2]. He died in 1954 [1]."
    assert verdict("citations", swapped, **row).score == 0
    dump = "Turing was born in 1912. He died in 1954. [1][2][3]"
    assert verdict("citations", dump, **row).score < 0.6, "two of the three support nothing of the last sentence"
