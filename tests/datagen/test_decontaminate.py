"""n-gram overlap of training rows with evaluation prompts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from burnish.cli import main
from burnish.datagen.decontaminate import Index, words_of

TEN = "one two three four five six seven eight nine ten"


def test_words_are_compared_without_case_and_punctuation() -> None:
    assert words_of("What's 2+2? NO-thing") == ["what", "s", "2", "2", "no", "thing"]


def test_the_share_of_words_that_an_8_gram_covers() -> None:
    """A prompt of ten words and a row that has the first eight of them: 8 of 10 words are covered, above one half.

    With two more words in front and four behind, 8 of 16 words are covered: one half, which is not more than one half.
    """
    index = Index(["zero one two three four five six seven eight end"])
    assert index.matching(TEN) == {0}
    assert index.matching(f"x y {TEN} a b c d") == set()
    assert index.matching(f"y {TEN} a b c d") == {0}  # 8 of 15
    assert index.matching(TEN, share=0.8) == set()


def test_grams_of_different_rows_do_not_add_up() -> None:
    """Eight of 18 words match row 0 and eight match row 1: neither has more than one half."""
    first, second = "a b c d e f g h", "k l m n o p q r"
    assert Index([first, second]).matching(f"{first} i j {second}") == set()
    assert Index([f"{first} x {second}"]).matching(f"{first} i j {second}") == {0}


def test_a_short_prompt_must_be_contained() -> None:
    index = Index(["what is 70 37 today", "70 38"])
    assert index.matching("70-37=?") == {0} and index.matching("70-38") == {1} and index.matching("?") == set()


def test_the_command_keeps_rows_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, test, out = (tmp_path / name for name in ("train.jsonl", "test.jsonl", "out.jsonl"))
    rows = [{"question": f"{TEN} {i} and this is number {i}", "answer": str(i), "mine": [i]} for i in range(20)]
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    test.write_text(json.dumps({"question": "nine ten 7 and this is number 7", "answer": "7"}) + "\n" + "{}\n"[:0])
    words = ["decontaminate", "--task", str(train), "--against", f"{test}+add", "-o", str(out)]
    assert main(words) == 0
    kept = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(row["answer"] for row in kept) == sorted(row["answer"] for row in rows if row["answer"] != "7")
    assert all(row["mine"] == [int(row["answer"])] for row in kept)
    said = capsys.readouterr().out
    assert "1 of 1 prompts (100.0%) overlap with 1 rows" in said and "19 of 20 rows" in said
    assert main(words) == 2  # the file exists
    assert main([*words[:5], "--json"]) == 0
