"""What judges say is kept: in a file that trains a model, with critiques in pairs, and by a listener."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from judge_server import prompt_of, serving
from test_judge_scorers import at, scored
from test_judges import blocks_of

from burnish.cli import main
from burnish.score.judges import read_judge
from burnish.score.judges.kept import listening
from burnish.tasks.data.dataset import Dataset


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_answers_are_kept_once_and_train(small_model: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    with serving(lambda body: "I see.\nScore: 7") as server:
        text = f"rubric({at(server, keep=kept)}, rubric='Is it right?')"
        for _ in range(2):
            traces, _ = scored(small_model, text, "q", ["one", "two"])
    assert [trace.scores["reward/rubric"] for trace in traces] == [pytest.approx(2 / 3)] * 2
    found = rows(kept)
    assert len(found) == 2, "a question that is asked again is kept once"
    assert found[0]["completion"] == [{"role": "assistant", "content": "I see.\nScore: 7"}]
    assert "Is it right?" in found[0]["prompt"][0]["content"] and found[0]["question"] == "rubric/1"
    assert Dataset(str(kept), heldout=0.5).gives >= {"demo"}, "sft trains on it"


def test_an_answer_that_did_not_come_is_not_kept(small_model: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    with serving(lambda body: "Score: 7") as server:
        server.faults = [400]
        scored(small_model, f"rubric({at(server, keep=kept, concurrency=1)}, rubric='Right?')", "q", ["one", "two"])
    assert len(rows(kept)) == 1


def test_a_listener_hears_what_a_question_showed(small_model: Path) -> None:
    with serving(lambda body: "Score: 7") as server, listening() as said:
        scored(small_model, f"rubric({at(server)}, rubric='Right?')", "q", ["one"])
    assert [one.question.texts for one in said] == [("q", "one")] and said[0].answer == "Score: 7"


def test_feedback_stands_in_the_pairs(small_model: Path, tmp_path: Path) -> None:
    def judge(body: dict[str, Any]) -> str:
        blocks = blocks_of(prompt_of(body))
        if "reply" in blocks:
            return f"On {blocks['reply']!r}: fine. Score: 3"
        return "Scores: " + ", ".join(str(1 + len(blocks[f"reply {i + 1}"]) % 5) for i in range(len(blocks) - 1))

    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "pairs.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"say {i}"}) + "\n" for i in range(4)))
    words = ["pairs", "--model", str(small_model), "--task", str(prompts), "--out", str(out), "--n", "4", "--json"]
    words += ["--max-new-tokens", "12", "--keep-cut-off", "--style", "standard", "--device", "cpu"]
    with serving(judge) as server:
        reward = f"ultrafeedback(endpoint({server.url}, m, cache=off), critique=True)"
        assert main([*words, "--reward", reward]) == 0
    for row in rows(out):
        for side in ("chosen", "rejected"):
            assert row[f"critique_{side}"] == f"On {row[side]!r}: fine. Score: 3"


@pytest.mark.parametrize(("keep", "why"), [("kept.txt", "a .jsonl file"), ("no/such/kept.jsonl", "there is no folder")])
def test_a_file_that_cannot_be_written_is_refused(keep: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_judge(f"endpoint(http://127.0.0.1:1/v1, m, keep={keep})")
