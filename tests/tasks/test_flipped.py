"""Wrong labels on purpose: which rows are reversed, what stays, and that the rest of a run works with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from burnish.score.judge import judge, require_verifier
from burnish.tasks.data import Dataset
from burnish.tasks.flipped import flipped
from burnish.tasks.resolve import datasets_of, resolve_task
from burnish.tasks.table import source

PAIRS = [{"prompt": f"q{i}", "chosen": f"good {i}", "rejected": f"bad {i}"} for i in range(400)]


def wrong(task: Any) -> bool:
    return str(task.given["chosen"]).startswith("bad")


def reversed_rows(share: float) -> list[str]:
    found = flipped(Dataset(PAIRS), share)
    return [task.key for i in range(found.size("train") or 0) if wrong(task := found.task("train", i))]


def test_a_share_of_the_training_pairs_is_reversed() -> None:
    """Binomial: of about 360 rows, 20% are 72 +- 8; the rows of a smaller share are among those of a larger one."""
    some, more = reversed_rows(0.2), reversed_rows(0.4)
    assert 45 <= len(some) <= 100 and 110 <= len(more) <= 180
    assert set(some) < set(more) and some == reversed_rows(0.2)
    assert not reversed_rows(0.0) and len(reversed_rows(1.0)) == Dataset(PAIRS).size("train")


def test_both_sides_change_places_and_heldout_rows_do_not() -> None:
    found = flipped(Dataset(PAIRS), 1.0)
    task = found.task("train", 0)
    number = task.key.removeprefix("q")
    assert (task.given["chosen"], task.given["rejected"]) == (f"bad {number}", f"good {number}")
    assert not any(wrong(found.task("heldout", i)) for i in range(found.size("heldout") or 0))


def test_labels_and_lists_are_reversed() -> None:
    labels = [{"prompt": f"q{i}", "completion": "r", "label": i % 2 == 0} for i in range(40)]
    task = flipped(Dataset(labels), 1.0).task("train", 3)
    assert task.given["label"] == (int(task.key[1:]) % 2 == 1)
    lists = [{"prompt": f"q{i}", "responses": ["a", "b", "c"], "scores": [3, 1, 2]} for i in range(40)]
    task = flipped(Dataset(lists), 1.0).task("train", 0)
    assert task.given["responses"] == ["b", "c", "a"] and task.given["scores"] == [3, 2, 1]
    assert (task.given["chosen"], task.given["rejected"]) == ("b", "a")


def test_a_task_with_worked_replies_keeps_them_and_its_verifier() -> None:
    plain, found = source("sort"), resolve_task("sort,flip=1")
    require_verifier(found)
    before, after = plain.task("train", 5), found.task("train", 5)
    assert after.given["demo"] == before.given["demo"]
    assert after.given["chosen"] == before.given["mistake"] and after.given["rejected"] == before.given["demo"]
    right, bad = judge(found, [after, after], [str(after.given["demo"]), str(after.given["mistake"])])
    assert right.correct and not bad.correct


def test_the_option_of_a_task(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    found = resolve_task(f"{file},flip=0.3")
    rows = Dataset(PAIRS).size("train") or 0
    assert 60 <= sum(wrong(found.task("train", i)) for i in range(rows)) <= 160 and len(datasets_of(found)) == 1
    mixed = resolve_task(f"{file}*0.5,flip=1,{file}*0.5")
    size = mixed.size("train") or 0
    bad = sum(wrong(mixed.task("train", i)) for i in range(size))
    assert bad == size / 2 and len(datasets_of(mixed)) == 2, "the option belongs to one of them"
    for task, said in ((f"{file},flip=1.5", "between 0 and 1"), (f"{file},flip=yes", "between 0 and 1")):
        with pytest.raises(ValueError, match=said):
            resolve_task(task)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"q{i}"}) + "\n" for i in range(20)))
    with pytest.raises(ValueError, match="has no labels that flip=0.1 could reverse"):
        resolve_task(f"{prompts},flip=0.1")
