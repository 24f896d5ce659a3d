"""`burnish tasks`: what is trained on in rows of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e.runs import rows

from burnish.cli import main

Told = Callable[..., str]
TURNS = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "r"}, {"role": "user", "content": "1+1?"}]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setenv("COLUMNS", "200")

    def tell(*words: str) -> str:
        assert main(["tasks", *words]) == 0
        return capsys.readouterr().out

    return tell


def test_earlier_replies_of_a_prompt_are_not_trained_on(told: Told, tmp_path: Path) -> None:
    pair = rows(tmp_path / "p.jsonl", *[{"prompt": TURNS, "chosen": "2", "rejected": "3"}] * 3)
    demo = rows(tmp_path / "d.jsonl", *[{"prompt": TURNS, "completion": "2"}] * 3)
    talk = rows(tmp_path / "t.jsonl", *[{"messages": [*TURNS, {"role": "assistant", "content": "2"}]}] * 3)
    for more in ((), ("--model", "tiny")):
        said = told(pair, "--rows", "1", *more)
        assert "⟦2" in said and "⟦3" in said and "⟦r" not in said
        assert "⟦2" in told(demo, "--rows", "1", *more) and "⟦r" not in told(demo, "--rows", "1", *more)
        assert "⟦r" in told(talk, "--rows", "1", *more)
        assert "⟦r" not in told(talk, "--rows", "1", "--train-on", "last", *more)


def test_pairs_are_rendered_with_both_replies_and_prompts_alone(told: Told, tmp_path: Path) -> None:
    pair = rows(tmp_path / "p.jsonl", *[{"prompt": "1+1?", "chosen": "2", "rejected": "3"}] * 3)
    said = told(pair, "--rows", "1", "--model", "tiny")
    assert "chosen: 9 tokens, 2 trained on\n<|user|>1+1?<|end|><|assistant|>⟦2<|end|>⟧" in said
    assert "rejected: 9 tokens, 2 trained on\n<|user|>1+1?<|end|><|assistant|>⟦3<|end|>⟧" in said
    asked = told(rows(tmp_path / "a.jsonl", *[{"prompt": "1+1?"}] * 3), "--rows", "1", "--model", "tiny")
    assert "7 tokens; a reply is sampled after them\n<|user|>1+1?<|end|><|assistant|>\n" in asked


def test_another_template_and_system_prompt_and_tools(told: Told, tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": json.dumps({"x": 1})}}
    talk = [*TURNS[:1], {"role": "assistant", "content": None, "tool_calls": [call]}]
    task = rows(tmp_path / "t.jsonl", *[{"messages": talk}] * 3)
    said = told(task, "--chat-template", "chatml+tools", "--system-prompt", "Be brief.", "--rows", "1")
    assert "<|im_start|>system\nBe brief.<|im_end|>" in said
    assert '⟦<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>' in said


def test_conversations_that_end_with_the_user_are_counted(told: Told, tmp_path: Path) -> None:
    said = told(rows(tmp_path / "t.jsonl", {"messages": TURNS[:1]}, *[{"messages": TURNS}] * 3), "--rows", "1")
    assert (
        "3 are cut after their last reply, 1 has none and is left out" in said and "⟦r⟧" in said and "1+1" not in said
    )
