"""Options are refused by what they mean: of other methods, rewards that nothing reads, replies beyond the context."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.runs import refused, rows

import burnish
from burnish.cli import main
from burnish.config.words import nearest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sft", "--n", "8"), "'n' of a2c, opd, ppo is: replies sampled for each prompt (`burnish show sft`"),
        (("dpo", "--eps", "0.1"), "is: how far the probability ratio may move from 1"),
        (("sft", "--stepz", "8"), "did you mean 'steps'?"),
        (("sft", "--push-to-hub", "me/it"), "a run uploads nothing; `burnish push RUN OWNER/NAME` does"),
        (("sft", "--deepspeed", "zero3.json"), "--ranks N uses N GPUs"),
    ],
)
def test_an_unknown_option_is_answered_by_its_meaning(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_short_word_is_no_slip_of_an_unrelated_one() -> None:
    assert nearest("n", ["on", "lr", "steps"]) == nearest("rm", ["n", "lr"]) == ""
    assert nearest("stps", ["on", "steps"], flag=True) == "; did you mean --steps?"


@pytest.mark.parametrize("method", ["sft", "dpo", "reward_model", "gkd"])
@pytest.mark.parametrize("reward", ["math", "coin", "tests/e2e/coin.py:coin"])
def test_a_reward_that_no_sampled_reply_gets_is_refused(method: str, reward: str, tmp_path: Path) -> None:
    data = rows(tmp_path / "d.jsonl", *[{"prompt": "a", "answer": "b", "chosen": "b", "rejected": "c"}] * 4)
    more = {"teacher": "tiny"} if method == "gkd" else {}
    given = (lambda completions: [0.0] * len(completions)) if reward == "coin" else reward
    with refused(f"{method} does not score sampled replies, so --reward has none to score", tmp_path / "run"):
        burnish.train(method, model="tiny", task=data, reward=given, out=str(tmp_path / "run"), steps=1, **more)


@pytest.mark.parametrize(
    "words",
    [
        ("train", "grpo", "--steps", "1"),
        ("train", "sft", "--steps", "1"),
        ("eval", "tiny", "--tasks", "2"),
        ("pairs", "--model", "tiny", "--count", "2", "--out", "p.jsonl"),
    ],
)
def test_replies_beyond_the_context_are_refused(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--task", "add", "--max-new-tokens", "512"]) == 2
    assert "leave no room for a prompt in the 512 tokens of the model's context; lower it" in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*/run.sqlite"))
