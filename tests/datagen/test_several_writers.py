"""Replies of several writers under principles: who writes what, and what `burnish pairs` records of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from judge_server import serving

from burnish.cli import main
from burnish.core.roles import Role
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Sampling, Task
from burnish.datagen.writers import WRITTEN_BY, read_principles, read_writers, roles_of, several
from burnish.judges.endpoint import Endpoint
from burnish.models.build import Models, build
from burnish.score.judge import reply_text


@pytest.fixture
def models(small_model: Path) -> Models:
    roles = {"policy": Role("frozen", "base"), **roles_of(read_writers(f"{small_model}+tiny"))}
    return build(roles, small_model, Settings(max_new_tokens=6), device="cpu")


def step(models: Models) -> Step:
    return Step(Clock(0, 1), models, Settings(max_new_tokens=6))


def test_writers_are_drawn_without_replacement_and_replies_are_theirs(small_model: Path, models: Models) -> None:
    """Four replies of two writers: two each; a single one of many prompts is by either of them."""
    writers = read_writers(f"{small_model}+tiny")
    tasks = [Task("question", f"say {i}", {}, str(i)) for i in range(12)]
    groups = several(writers, 4, [], Sampling()).call(tasks[:3], step(models))
    for group in groups:
        assert Counter(trace.note[WRITTEN_BY] for trace in group.traces) == {str(small_model): 2, "tiny": 2}
        assert [trace.index for trace in group.traces] == [0, 1, 2, 3]
        assert len({int(trace.turns[0].tokens.sum()) for trace in group.traces}) == 1, "one prompt"
    single = several(writers, 1, [], Sampling()).call(tasks, step(models))
    assert len({group.traces[0].note[WRITTEN_BY] for group in single}) == 2
    again = several(writers, 4, [], Sampling()).call(tasks[:3], step(models))
    texts = [[reply_text(trace, models["policy"].chat) for trace in group.traces] for group in groups]
    assert texts == [[reply_text(trace, models["policy"].chat) for trace in group.traces] for group in again]


def test_an_endpoint_writes_under_principles_that_the_rows_do_not_show(small_model: Path, tmp_path: Path) -> None:
    prompts, out, lines = tmp_path / "prompts.jsonl", tmp_path / "pairs.jsonl", tmp_path / "principles.txt"
    prompts.write_text("".join(json.dumps({"prompt": f"say {i}", "answer": "1"}) + "\n" for i in range(4)))
    lines.write_text("Be brief.\n\nBe honest.\n")

    def reply(body: dict[str, Any]) -> str:
        assert body["max_tokens"] == 12 and body["messages"][-1]["content"].startswith("say ")
        return "brief" if "brief" in body["messages"][0]["content"] else "honest, and long"

    scorer = tmp_path / "longer.py"
    scorer.write_text("def longer(completions):\n    return [float(len(text)) for text in completions]\n")
    with serving(reply) as server:
        writer = f"endpoint({server.url}, big, cache={tmp_path / 'cache'})"
        words = ["pairs", "--model", f"{small_model}+{writer}", "--task", str(prompts), "--n", "4", "--device", "cpu"]
        words += ["--principles", str(lines), "--max-new-tokens", "12", "--keep-cut-off", "--json"]
        assert main([*words, "--reward", f"{scorer}:longer", "--out", str(out)]) == 0
        asked = [body["messages"][0] for body in server.requests]
    assert {one["content"] for one in asked} == {"Be brief.", "Be honest."} and {one["role"] for one in asked} == {
        "system"
    }
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows and all(message["role"] == "user" for row in rows for message in row["prompt"])
    for row in rows:
        assert row["model_chosen"] in (str(small_model), f"big at {server.url}")
        for side in ("chosen", "rejected"):
            if row[f"model_{side}"].startswith("big at"):
                said = {"Be brief.": "brief", "Be honest.": "honest, and long"}[row[f"principle_{side}"]]
                assert row[side][0]["content"] == said


def test_an_endpoint_that_gives_no_answer_costs_its_reply(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Endpoint, "attempts", 1, raising=False)
    with serving(lambda body: "here", always=None) as server:
        server.faults = [400]
        writers = read_writers(f"tiny+endpoint({server.url}, big, cache=off, attempts=1)")
        tasks = [Task("question", f"say {i}", {}, str(i)) for i in range(3)]
        groups = several(writers, 2, [], Sampling()).call(tasks, step(models))
    assert sorted(len(group.traces) for group in groups) == [1, 2, 2]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--model", "tiny+tiny"], "names a model twice"),
        (["--model", "tiny+", "--n", "2"], "a plus sign without a model"),
        (["--principles", "absent.txt"], "there is no such file"),
        (["--model", "tiny+endpoint(http://127.0.0.1:1/v1, m)", "--rule", "diverse_vs_usual"], "unknown of endpoints"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pairs", "--task", "sort", "--out", str(tmp_path / "p.jsonl"), *words]) == 2
    assert why in " ".join(capsys.readouterr().err.split())


def test_principles_are_lines(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("a\n\n b \n")
    assert read_principles(str(tmp_path / "p.txt")) == ["a", "b"] and read_principles(None) == []
