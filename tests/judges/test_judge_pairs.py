"""Preference data from a judge by aspects: `burnish pairs` with rewards by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from judge_server import prompt_of, serving
from test_judge_scorers import at, judging, scored
from test_judges import blocks_of

from burnish.cli import main
from burnish.core.scorer import is_failed
from burnish.datagen.unfinished_file import UnfinishedFile
from burnish.tasks.data.dataset import Dataset


def test_ratings_are_unshuffled_and_averaged_over_aspects(small_model: Path) -> None:
    """Truthfulness (5, 4) and helpfulness (4, 3): means 4.5 and 3.5; the shuffled order is undone."""
    ratings = {"truthfulness": {"one": 5, "two": 4}, "helpfulness": {"one": 4, "two": 3}}

    def judge(body: dict[str, Any]) -> str:
        aspect = next(name for name in ratings if f"only for {name}:" in prompt_of(body))
        blocks = blocks_of(prompt_of(body))
        return "Scores: " + ", ".join(str(ratings[aspect][blocks[f"reply {i}"]]) for i in (1, 2))

    with serving(judge) as server:
        text = f"ultrafeedback({at(server)}, aspects='truthfulness: true?\\nhelpfulness: useful?')"
        traces, _ = scored(small_model, text, "q", ["one", "two", ":"])
        assert len(server.requests) == 2
    assert [t.scores["reward/ultrafeedback"] for t in traces] == [4.5, 3.5, 1.0]
    assert traces[0].note["ratings"] == {"truthfulness": 5.0, "helpfulness": 4.0}


def test_an_unread_aspect_is_left_out_for_all_replies(small_model: Path) -> None:
    def judge(body: dict[str, Any]) -> str:
        return "Scores: 2, 2" if "only for honesty:" in prompt_of(body) else "no idea"

    with serving(judge) as server:
        traces, step = scored(small_model, f"ultrafeedback({at(server)})", "q", ["one", "two"])
    assert [t.scores["reward/ultrafeedback"] for t in traces] == [2.0, 2.0]
    assert step.notes.means()["judge_unread"] == 0.75
    with serving(lambda body: "no idea") as server:
        traces, _ = scored(small_model, f"ultrafeedback({at(server)})", "q", ["one", "two"])
    assert all(is_failed(trace) for trace in traces)


def test_a_code_request_has_one_preference(small_model: Path) -> None:
    with serving(judging(lambda blocks: "Scores: 5, 1")) as server:
        scored(small_model, f"codeultrafeedback({at(server)})", "sort a list", ["one", "two"], preference="style")
        assert len(server.requests) == 1 and "only for style:" in prompt_of(server.requests[0])
        scored(small_model, f"codeultrafeedback({at(server)})", "sort a list", ["one", "two"])
        assert len(server.requests) == 2
        with pytest.raises(ValueError, match="has the preference 'speed'; the preferences are instruction following"):
            scored(small_model, f"codeultrafeedback({at(server)})", "q", ["one"], preference="speed")


def test_pairs_from_ratings_load_again(small_model: Path, tmp_path: Path) -> None:
    """Replies are rated by their length: the pair has ratings, a margin, and a grade of (difference / 4)."""

    def rating(text: str) -> int:
        return 1 + len(text) % 5

    def judge(body: dict[str, Any]) -> str:
        blocks = blocks_of(prompt_of(body))
        listed = [blocks[f"reply {i + 1}"] for i in range(len(blocks) - 1)]
        return "Scores: " + ", ".join(str(rating(text)) for text in listed)

    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"say {i}"}) + "\n" for i in range(6)))
    out = tmp_path / "pairs.jsonl"
    words = ["pairs", "--model", str(small_model), "--task", str(prompts), "--out", str(out), "--n", "4"]
    words += ["--max-new-tokens", "12", "--keep-cut-off", "--style", "standard", "--device", "cpu", "--json"]
    with serving(judge) as server:
        reward = f"ultrafeedback(endpoint({server.url}, m, cache={tmp_path / 'cache'}))"
        assert main([*words, "--reward", reward]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows
    for row in rows:
        better, worse = rating(row["chosen"]), rating(row["rejected"])
        assert (row["score_chosen"], row["score_rejected"]) == (better, worse) and better > worse
        assert row["margin"] == better - worse and row["grade"] == (better - worse) / 4
        assert row["gap"] == better - worse and len(row["ratings_chosen"]) == 4
    loaded = Dataset(str(out))
    assert {"chosen", "rejected", "grade", "ratings_chosen"} <= loaded.gives


def test_the_pairs_with_the_largest_gap_are_kept(tmp_path: Path) -> None:
    from burnish.datagen.preference_data import Made

    file = UnfinishedFile(tmp_path / "pairs.jsonl", {})
    with file:
        file.add([Made(i, [{"gap": gap, "i": i}]) for i, gap in enumerate((0.1, 0.9, 0.5, 0.9, 0.2))])
        assert file.finish(0.4) == 2
    assert [json.loads(line)["i"] for line in (tmp_path / "pairs.jsonl").read_text().splitlines()] == [1, 3]
