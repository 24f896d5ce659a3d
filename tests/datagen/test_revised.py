"""`burnish revise`: critiques and revisions by principles, and the lessons that teach a small model the questions."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from judge_server import prompt_of, serving
from test_judges import blocks_of

from burnish.cli import main
from burnish.datagen.revised import lessons
from burnish.tasks.data.dataset import Dataset
from burnish.tasks.table import source


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def words(model: Path, tmp_path: Path, out: Path, critic: str, *more: str) -> list[str]:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"say {i}"}) + "\n" for i in range(6)))
    first = ["revise", "--model", str(model), "--task", str(prompts), "--critic", critic, "--out", str(out)]
    return [*first, "--device", "cpu", "--json", *more]


def critic(body: dict[str, Any]) -> str:
    """Counts the rounds: a reply without a number gets 1, then 2."""
    text = prompt_of(body)
    blocks = blocks_of(text)
    principle = "kind" if "Be kind" in text else "true"
    if "critique" not in blocks:
        return f"It is not {principle}."
    assert blocks["critique"] == f"It is not {principle}.", "the critique of the same principle"
    number = int(blocks["reply"][-1]) if blocks["reply"].startswith("revision") else 0
    return f"revision {number + 1}"


def test_replies_are_criticised_and_revised_twice(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("burnish.datagen.revised.is_cut_off", lambda trace: False)
    out, lines = tmp_path / "revised.jsonl", tmp_path / "principles.txt"
    lines.write_text("Be kind.\nBe true.\n")
    more = ["--principles", str(lines), "--rounds", "2", "--max-new-tokens", "8"]
    with serving(critic) as server:
        judge = f"endpoint({server.url}, m, cache=off)"
        assert main(words(small_model, tmp_path, out, judge, *more)) == 0
        assert len(server.requests) == 5 * 2 * 2
    found = rows(out)
    assert len(found) == 5 and json.loads(capsys.readouterr().out)["changed"] == 5
    for row in found:
        assert row["completion"] == [{"role": "assistant", "content": "revision 2"}]
        said = [f"It is not {'kind' if one == 'Be kind.' else 'true'}." for one in row["principles"]]
        assert len(row["principles"]) == 2 and row["critiques"] == said
    assert len(Counter(row["principles"][0] for row in found)) == 2, "drawn, not one for all"
    assert "demo" in Dataset(str(out), heldout=0.5).gives


def test_pairs_hold_the_first_reply(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.datagen.revised.is_cut_off", lambda trace: False)
    out = tmp_path / "pairs.jsonl"
    with serving(lambda body: "better") as server:
        judge = f"endpoint({server.url}, m, cache=off)"
        assert main(words(small_model, tmp_path, out, judge, "--format", "pairs", "--max-new-tokens", "8")) == 0
    found = rows(out)
    assert all(row["chosen"][0]["content"] == "better" != row["rejected"][0]["content"] for row in found)
    assert {"chosen", "rejected"} <= Dataset(str(out), heldout=0.5).gives


def test_a_revision_that_says_nothing_is_left_out(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("burnish.datagen.revised.is_cut_off", lambda trace: False)
    out = tmp_path / "revised.jsonl"
    with serving(lambda body: ":" if "say 3" in prompt_of(body) else "better") as server:
        judge = f"endpoint({server.url}, m, cache=off)"
        assert main(words(small_model, tmp_path, out, judge, "--max-new-tokens", "8")) == 0
    assert len(rows(out)) == 4 and json.loads(capsys.readouterr().out)["failed"] == 1
    with serving(lambda body: ":") as server:
        judge = f"endpoint({server.url}, m, cache=off)"
        assert main(words(small_model, tmp_path, tmp_path / "none.jsonl", judge, "--max-new-tokens", "8")) == 2
    assert "none of the 5 prompts gave a row" in " ".join(capsys.readouterr().err.split())


def test_lessons_ask_what_revise_and_labels_ask() -> None:
    """Of each pair: bad and good, the preferred reply after either, and its letter in both orders."""
    found = list(lessons(source("sort"), ["Be right."], 1))
    answers = [row["completion"][0]["content"] for row in found]
    better = answers[1]
    assert answers == ["bad", better, "good", better, "A", "B"]
    asked = [blocks_of(row["prompt"][0]["content"]) for row in found]
    assert asked[4]["A"] == better == asked[5]["B"] and asked[1]["critique"] == "bad" and asked[2]["reply"] == better


def test_a_task_without_pairs_gives_no_lessons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a", "answer": "b"}\n' * 3)
    assert main(["revise", "--task", str(file), "--lessons", "--out", str(tmp_path / "o.jsonl")]) == 2
    assert "has no pairs" in capsys.readouterr().err
