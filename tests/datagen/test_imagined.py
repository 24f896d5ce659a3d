"""Imagined dialogues: what is asked, what is read, and the file that offline RL reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, build_cast
from guards import guards
from judge_server import prompt_of, serving

from burnish.commands.imagine import main
from burnish.core.loop import loop
from burnish.datagen.imagined import Imagination, dialogue_question, label_question, parse_dialogue, persona_question
from burnish.methods.table import find
from burnish.tasks.data.dataset import Dataset

TASK = "Find out where the user wants to travel."
GOOD = "User: hi\nAgent: Where to?\nUser: Somewhere warm,\nby the sea.\nAgent: Crete!\nUser: thanks"


def test_dialogues_are_read_from_their_lines() -> None:
    assert parse_dialogue(GOOD) == (
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Where to?"},
        {"role": "user", "content": "Somewhere warm,\nby the sea."},
        {"role": "assistant", "content": "Crete!"},
    )
    assert parse_dialogue("**User:** hi\n**Agent:** ho") == parse_dialogue("User: hi\nAgent: ho")
    for bad in (
        "",
        "hello",
        "Agent: hi\nUser: ho",
        "User: a\nUser: b\nAgent: c",
        "User: hi",
        "User:\nAgent: x",
        f"So: {GOOD}",
    ):
        assert parse_dialogue(bad) is None, bad


def test_questions_hold_what_they_are_about_behind_a_fence() -> None:
    about = Imagination(TASK, turns=4)
    assert TASK in persona_question(about, 0).text
    assert persona_question(about, 0).key != persona_question(about, 1).key
    asked = dialogue_question(about, "A sailor.", "expert", 0, 0)
    assert "A sailor." in asked.text and "expert" in asked.text and "at most 4 lines" in asked.text
    assert asked.key != dialogue_question(about, "A sailor.", "expert", 0, 1).key
    judged = label_question(about, "A sailor.", parse_dialogue(GOOD) or ()).text
    assert "Agent: Crete!" in judged and "[dialogue begin" in judged


def answer(body: dict[str, Any]) -> str:
    """A writer and a judge: experts do well, and the third dialogue of a person cannot be read."""
    asked = prompt_of(body)
    if "Invent one person" in asked:
        return "A sailor who loves the sea."
    if "Write their whole dialogue" in asked:
        return GOOD if "expert" in asked else "User: hi\nAgent: Go home." if "unskilled" in asked else "They talk."
    return "Well.\nScore: 9" if "Crete" in asked else "Badly.\nScore: 1"


@guards("datagen", "commands/imagine.py", "tasks/data", "judges")
def test_the_file_is_episodes_for_offline_rl(
    tmp_path: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "dialogues.jsonl"
    with serving(answer) as server:
        who = f"endpoint({server.url}, any, cache={tmp_path / 'cache'})"
        words = ["--task", TASK, "--writer", who, "--out", str(out), "--personas", "3", "--json"]
        assert main(words) == 0
        writers = [body for body in server.requests if "Write their" in prompt_of(body)]
        assert len(writers) == 9 and {body["temperature"] for body in writers} == {1.0}
    told = json.loads(capsys.readouterr().out)
    assert (told["personas"], told["dialogues"], told["rows"], told["unusable"]) == (3, 9, 6, 3)
    assert told["reward_by_skill"] == {"poor": pytest.approx(0.1), "expert": pytest.approx(0.9)}
    rows = Dataset(out, heldout=0.0)
    episode = next(
        task.given["episode"] for i in range(6) if (task := rows.task("train", i)).given["skill"] == "expert"
    )
    assert [m["reward"] for m in episode if m["role"] == "assistant"] == [0.0, 0.9]
    built = find("ilql").build(rows, value_steps=1)
    report = next(loop(built, build_cast(built, small_model), SMALL, steps=1))
    assert report.metrics["recorded_return"] > 0


def test_a_small_model_that_writes_no_dialogue_is_told_so(tmp_path: Path, small_model: Path) -> None:
    """The whole way with a real model, whose random text cannot be read."""
    words = ["--task", TASK, "--writer", str(small_model), "--out", str(tmp_path / "a.jsonl"), "--personas", "1"]
    with pytest.raises(ValueError, match="none of 1 dialogues could be read and judged"):
        main([*words, "--dialogues", "1", "--max-new-tokens", "8", "--device", "cpu"])


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--writer is missing"):
        main(["--task", TASK, "--out", str(tmp_path / "a.jsonl")])
    with pytest.raises(ValueError, match="there is no policy here"):
        main(["--task", TASK, "--writer", "policy", "--out", str(tmp_path / "b.jsonl")])
    with pytest.raises(ValueError, match="there is no file"):
        main(
            [
                "--task",
                "@nowhere.txt",
                "--writer",
                "endpoint(http://127.0.0.1:9/v1, m)",
                "--out",
                str(tmp_path / "c.jsonl"),
            ]
        )
