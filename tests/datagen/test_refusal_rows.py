"""Generated refusals: their categories, and that held-out rows have words that no training row has."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from burnish.cli import main
from burnish.datagen.refusal_rows import ASKED, OPENINGS, REASONS, refusal_rows
from burnish.verifiers.refusal_categories import CANNOT, SHOULD_NOT, Categories


def test_every_category_has_requests_and_reasons() -> None:
    assert set(ASKED) == set(REASONS) == {*CANNOT, *SHOULD_NOT}
    wordings = [one for some in REASONS.values() for one in some]
    assert len(set(wordings)) == len(wordings) == 96 and all(len(some) == 6 for some in REASONS.values())


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_rows_say_what_their_categories_say(split: str) -> None:
    """600 rows: each named category has one of its reasons in the reply, and no other category has."""
    rows = list(refusal_rows(600, split))
    seen = Counter(name for row in rows for name in row["refusal"])
    assert set(seen) == set(REASONS) and min(seen.values()) >= 10
    assert 0.3 < sum(not row["refusal"] for row in rows) / 600 < 0.4
    for row in rows:
        said = {name for name, some in REASONS.items() if any(reason in row["completion"] for reason in some)}
        assert said == set(row["refusal"])
        assert sum(Categories().labels(row["refusal"], "here")) == len(row["refusal"]) <= 2


def test_held_out_rows_have_other_words() -> None:
    wordings = [*OPENINGS, *(one for some in REASONS.values() for one in some)]
    both = {}
    for split in ("train", "heldout"):
        text = " ".join(row["completion"] for row in refusal_rows(1500, split) if row["refusal"])
        both[split] = {one for one in wordings if one in text}
    assert not both["train"] & both["heldout"]
    assert both["train"] | both["heldout"] == set(wordings)
    assert list(refusal_rows(5)) == list(refusal_rows(5)) != list(refusal_rows(5, seed=1))


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    assert main(["refusals", "--generate", "7", "--out", str(out)]) == 0
    assert "burnish train refusal_classifier --task" in capsys.readouterr().out
    assert [json.loads(line) for line in out.read_text().splitlines()] == list(refusal_rows(7))
    assert main(["refusals", "--generate", "7", "--out", str(out)]) == 2
    assert "must be a new file" in capsys.readouterr().err
    assert main(["refusals", "--generate", "7"]) == 2 and "--out refusals.jsonl" in capsys.readouterr().err
