"""`burnish steps`: what it writes, how it continues, and that the files train a model that ranks steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import burnish
from burnish.cli import main
from burnish.datagen import step_data

FAST = ("--task", "multiply", "--device", "cpu", "--max-new-tokens", 40)


def steps(out: Path, *words: object) -> int:
    return main(["steps", *map(str, FAST), "-o", str(out), *map(str, words)])


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_labels_are_shares_of_right_completions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "steps.jsonl"
    assert steps(out, "--count", 8, "--n", 3, "--completions", 4, "--json") == 0
    summary, made = json.loads(capsys.readouterr().out), rows(out)
    assert summary["rows"] == len(made) > 8 and summary["means"]["steps"] > 2
    for row in made:
        assert len(row["completions"]) == len(row["labels"]) and row["separator"] == "\n"
        assert all(label * 4 == int(label * 4) for label in row["labels"]) and row["labels"][-1] == row["correct"]
    shared: dict[tuple[str, ...], set[float]] = {}
    for row in made:  # a prefix that replies have in common is completed once
        shared.setdefault((row["prompt"][0]["content"], row["completions"][0]), set()).add(row["labels"][0])
    assert all(len(labels) == 1 for labels in shared.values())


def test_the_first_error_is_found_and_what_follows_is_wrong(tmp_path: Path) -> None:
    out = tmp_path / "steps.jsonl"
    assert steps(out, "--rule", "first_error", "--count", 6, "--n", 3, "--style", "standard") == 0
    made = rows(out)
    for row in made:
        assert row["labels"] == sorted(row["labels"], reverse=True) and row["labels"][-1] == row["correct"]
    assert any(len(set(row["labels"])) == 2 for row in made)
    assert {type(row["prompt"]) for row in made} == {str}


@pytest.mark.parametrize("rule", ["hard", "entropy", "forced", "outcome"])
def test_other_rules(rule: str, tmp_path: Path) -> None:
    out = tmp_path / "steps.jsonl"
    assert steps(out, "--rule", rule, "--count", 3, "--n", 2, "--completions", 3) == 0
    for row in rows(out):
        assert all(0 <= label <= 1 for label in row["labels"]) and row["labels"][-1] == row["correct"]
        if rule == "hard":
            assert {type(label) for label in row["labels"]} == {bool}
        if rule == "outcome":
            assert set(row["labels"]) == {float(row["correct"])}


def test_it_continues_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, broken = tmp_path / "whole.jsonl", tmp_path / "broken.jsonl"
    options = ("--count", 4, "--n", 2, "--completions", 2)
    monkeypatch.setattr(step_data, "AT_ONCE", 4)
    assert steps(whole, *options) == 0
    calls = []

    def stopping(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*given, **named)

    real = step_data._judged
    with monkeypatch.context() as patch:
        patch.setattr(step_data, "_judged", stopping)
        assert steps(broken, *options) == 130
    assert steps(broken, *options) == 0
    assert rows(broken) == rows(whole)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--steps", "words"), "steps is 'words'"),
        (("--task", "guess"), "a game of several turns"),
        (("--rule", "best"), "rule"),
    ],
)
def test_mistakes_are_answered(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["steps", "--device", "cpu", "-o", str(tmp_path / "s.jsonl"), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_of_monte_carlo_labels_ranks_held_out_steps(tmp_path: Path) -> None:
    """Trained on the share of right completions, it tells right from wrong steps of prompts that it has not seen."""
    out = tmp_path / "steps.jsonl"
    assert steps(out, "--count", 256) == 0
    result = burnish.train(
        "process_reward_model", model="tiny", task=str(out), steps=80, device="cpu", out=str(tmp_path / "prm")
    )
    assert result.before is not None and result.after is not None
    assert result.before.value.mean < 0.7 < result.after.value.mean
    chosen = burnish.train(
        "best_of_n",
        model="tiny",
        task="multiply",
        reward=f"prm({result.model})",
        n=8,
        steps=2,
        prompts=32,
        max_new_tokens=40,
        device="cpu",
        out=str(tmp_path / "best"),
    )
    assert chosen.before is not None and chosen.after is not None
    assert chosen.after.value.mean > chosen.before.as_sampled.mean + 0.15
