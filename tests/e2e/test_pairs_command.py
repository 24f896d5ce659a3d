"""`burnish pairs`: what it writes, how it continues, and that the files train."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from guards import guards
from runs import function, go

from burnish.cli import main
from burnish.datagen import unfinished_file
from burnish.datagen.preference_data import Made
from burnish.tasks.data import Dataset

pytestmark = guards("datagen/preference_data.py", "commands/pairs.py")

FAST = ("--model", "tiny", "--task", "sort", "--device", "cpu", "--max-new-tokens", "48")


def pairs(out: Path, *words: object) -> int:
    return main(["pairs", *map(str, FAST), "-o", str(out), *map(str, words)])


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_pairs_are_scored_and_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "pairs.jsonl"
    assert pairs(out, "--n", 6, "--count", 24, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    rows = read(out)
    assert summary["rows"] == len(rows) >= 12 and summary["prompts"] == 24 and summary["replies"] == 24 * 6
    assert summary["rows"] + summary["prompts_without_a_row"] + summary["repeated"] == 24
    for row in rows:
        assert row["margin"] == row["score_chosen"] - row["score_rejected"] > 0
        assert [m["role"] for m in row["prompt"] + row["chosen"] + row["rejected"]] == [
            "user",
            "assistant",
            "assistant",
        ]
        assert row["model"] == "tiny" and row["length_chosen"] > 1
        asked = row["prompt"][0]["content"]
        letters = sorted(asked.partition(": ")[2].split(), reverse=asked.startswith("Sort down"))
        answers = {side: row[side][0]["content"].rpartition("answer: ")[2].split() for side in ("chosen", "rejected")}
        assert answers["chosen"] == letters != answers["rejected"], "the verifier decided"
    assert not list(tmp_path.glob("*.partial"))
    result = go("dpo", "tiny", tmp_path / "run", task=str(out), steps=3, prompts=8, lr=1e-5)
    assert result.metrics[-1]["reply/margin"] > 0


def test_labels_train_kto_and_lists_train_lipo(tmp_path: Path) -> None:
    labels, lists = tmp_path / "labels.jsonl", tmp_path / "lists.jsonl"
    assert pairs(labels, "--format", "labels", "--n", 2, "--count", 16, "--style", "standard") == 0
    rows = read(labels)
    assert {row["label"] for row in rows} == {True, False}
    assert all(row["label"] == (row["score"] > 0.5) and isinstance(row["completion"], str) for row in rows)
    result = go("kto", "tiny", tmp_path / "kto", task=str(labels), steps=3, prompts=8, lr=1e-5)
    good, bad = (result.metrics[-1][f"reply/{side}_logratio"] for side in ("chosen", "rejected"))
    assert good > bad
    assert pairs(lists, "--format", "lists", "--n", 6, "--count", 12) == 0
    for row in read(lists):
        assert row["scores"] == sorted(row["scores"], reverse=True) and len(set(row["scores"])) > 1
        assert len(row["responses"]) == len(row["lengths"]) == len(row["scores"])
    for method in ("lipo", "nca_rewards", "exo_rewards"):
        result = go(method, "tiny", tmp_path / method, task=str(lists), steps=2, prompts=4, lr=1e-6)
        assert result.metrics[0]["traces"] == 4 * 6 and "sampled_tokens" not in result.metrics[0], "nothing is sampled"


def test_a_rule_on_pairs_labels_both_sides(tmp_path: Path) -> None:
    out, compared = tmp_path / "labels.jsonl", tmp_path / "pairs.jsonl"
    both = ("--n", 4, "--count", 8, "--style", "standard")
    assert pairs(out, "--format", "labels", "--rule", "best_vs_worst", *both) == 0
    assert pairs(compared, *both) == 0
    taken_apart = {
        (row["prompt"], row[side], side == "chosen") for row in read(compared) for side in ("chosen", "rejected")
    }
    assert {(row["prompt"], row["completion"], row["label"]) for row in read(out)} == taken_apart


def test_parquet_holds_the_same_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for out in (tmp_path / "a.jsonl", tmp_path / "a.parquet"):
        assert pairs(out, "--n", 4, "--count", 8, "--rule", "every_pair") == 0
    rows = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert rows == read(tmp_path / "a.jsonl") and len(rows) > 8
    assert {"chosen", "rejected"} <= Dataset(str(tmp_path / "a.parquet")).gives


def test_an_interrupted_file_continues_to_the_same_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("burnish.datagen.preference_data.AT_ONCE", 16)
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"
    options = ("--n", 4, "--count", 12)
    assert pairs(whole, *options) == 0
    add, calls = unfinished_file.UnfinishedFile.add, []

    def stop(self: unfinished_file.UnfinishedFile, made: list[Made]) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        add(self, made)

    with monkeypatch.context() as patch:
        patch.setattr(unfinished_file.UnfinishedFile, "add", stop)
        assert pairs(broken, *options) == 130
    assert "stopped after 8 prompts" in capsys.readouterr().err and not broken.exists()
    partial = tmp_path / "broken.jsonl.partial"
    with partial.open("a") as file:
        file.write('{"index": 8, "ro')  # as a crash leaves it
    assert pairs(broken, "--n", 5, "--count", 12) == 2
    assert "other options (n 4, now 5)" in " ".join(capsys.readouterr().err.split())
    assert pairs(broken, *options) == 0
    assert broken.read_text() == whole.read_text() and not partial.exists()


def test_a_reward_function_scores_and_repeated_prompts_are_asked_once(tmp_path: Path) -> None:
    reward = function(
        tmp_path / "r.py", "def short(completions):\n    return [-len(t) for t in completions]\n", "short"
    )
    data = tmp_path / "prompts.jsonl"
    asked = ["Sort up: b a", "Sort up: d c", "Sort up: b a"] * 4 + [f"Sort up: {c} a" for c in "efghijkl"]
    data.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in asked))
    out = tmp_path / "out.jsonl"
    words = ["--model", "tiny", "--task", str(data), "--device", "cpu", "--n", "4", "--reward", reward]
    assert main(["pairs", *words, "--out", str(out)]) == 0
    rows = read(out)
    prompts = [row["prompt"][0]["content"] for row in rows]
    assert len(prompts) == len(set(prompts)) and len(rows) > 2
    assert all(len(row["chosen"][0]["content"]) < len(row["rejected"][0]["content"]) for row in rows)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "{}/there.jsonl"), "there.jsonl exists already"),
        (("--out", "{}/a.csv"), "the file ends in .jsonl or .parquet"),
        (("--out", "{}/no/a.jsonl"), "there is no folder"),
        ((), "say where to write"),
        (("--out", "{}/a.jsonl", "--format", "lists", "--rule", "every_pair"), "--rule every_pair makes no lists"),
        (("--out", "{}/a.jsonl", "--n", "1"), "a comparison needs at least 2 replies"),
        (("--out", "{}/a.jsonl", "--task", "guess"), "a game of several turns"),
        (("--out", "{}/a.jsonl", "--count", "2", "--max-new-tokens", "1"), "none of the 2 prompts gave a row"),
        (
            ("--out", "{}/a.jsonl", "--count", "2", "--n", "2", "--reward", "ultrafeedback(tiny)"),
            "because 4 of 4 replies could not be scored, and the replies to each score the same",
        ),
    ],
)
def test_what_is_refused(words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there.jsonl").write_text("mine\n")
    assert main(["pairs", "--device", "cpu", *(word.format(tmp_path) for word in words)]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "there.jsonl").read_text() == "mine\n"
