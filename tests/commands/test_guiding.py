"""--guide and --against of eval, chat and serve: a model tuned from the one that is guided speaks by itself."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from conftest import SMALL

from burnish.cli import main
from burnish.commands.guiding import read_guides
from burnish.core.roles import roles
from burnish.core.step import Step
from burnish.core.types import Clock, Sampling
from burnish.models.build import build
from burnish.rollout.candidates import started
from burnish.rollout.starts import Reply, write_arriving, write_on
from burnish.tasks.table import source


def test_weights_of_guides() -> None:
    logits = [torch.log_softmax(torch.randn(2, 5, generator=torch.Generator().manual_seed(i)), -1) for i in range(4)]
    alone = read_guides("a*0.5,b*2", None)
    assert alone.blend is not None and alone.blend.others == ("guide", "guide2")
    assert torch.allclose(alone.blend.mix(logits[:3]), logits[0] + 0.5 * logits[1] + 2 * logits[2])
    tuned = read_guides("a*0.5,b*2", "c")
    assert tuned.blend is not None and tuned.models["against"].source == "c"
    wanted = logits[0] + 0.5 * (logits[1] - logits[3]) + 2 * (logits[2] - logits[3])
    assert torch.allclose(tuned.blend.mix(logits), wanted, atol=1e-5)
    assert read_guides(None, None).blend is None


def test_what_cannot_guide_is_refused(small_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["--against", "tiny"], "add --guide MODEL"),
        (["--guide", "tiny*x"], "the weight of 'tiny' is 'x', not a number"),
        (["--guide", "tiny"], "has another tokenizer"),
        (["--guide", str(small_model), "--measure", "likelihood"], "the measure likelihood reads none"),
    ):
        assert main(["eval", str(small_model), "--task", "sort", "--tasks", "2", "--device", "cpu", *words]) == 2
        assert said in " ".join(capsys.readouterr().err.split())


def test_eval_of_a_guided_model(
    small_model: Path, other_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text("def letters(completion):\n    return float(sum(map(ord, completion)) % 97)\n")
    words = ["--reward", f"{reward}:letters"]
    words += ["--task", "sort", "--tasks", "6", "--k", "2", "--max-new-tokens", "12", "--device", "cpu", "--json"]

    def shown(model: Path, *more: str) -> dict:
        assert main(["eval", str(model), *words, *more]) == 0
        return {**json.loads(capsys.readouterr().out), "model": ""}

    guided = shown(small_model, "--guide", str(other_model), "--against", str(small_model))
    assert guided == shown(other_model), "pi + tuned - pi is the tuned model"
    assert guided["reward"] != shown(small_model)["reward"]
    assert shown(small_model, "--guide", f"{other_model}*0") == shown(small_model)


def test_chat_with_a_guided_model(
    small_model: Path, other_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(model: Path, *more: str) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO("hello\nand now?\n"))
        assert main(["chat", str(model), "--max-new-tokens", "12", "--device", "cpu", *more]) == 0
        return capsys.readouterr().out

    guided = said(small_model, "--guide", str(other_model), "--against", str(small_model))
    assert guided == said(other_model) != said(small_model)


class _AtOnce:
    """Replies that are all asked for at once."""

    def __init__(self, replies: list[Reply]) -> None:
        self.rows, self.left, self.written = len(replies), list(replies), 0

    def take(self, wait: bool) -> list[Reply]:
        found, self.left = self.left, []
        return found

    def wrote(self, reply: Reply) -> None:
        self.written += 1


def test_questions_of_a_server_are_answered_by_the_blend(small_model: Path, other_model: Path) -> None:
    guides = read_guides(f"{other_model}*0.7", str(small_model))
    models = build(roles(**guides.models), small_model, SMALL, device="cpu")
    step, task = Step(Clock(0, 1), models, SMALL), source("sort").task("train", 0)
    served, alone, direct = (started(task, 3, step, Sampling(0.9), "policy", "hosted") for _ in range(3))
    arrivals = _AtOnce(served)
    write_arriving(arrivals, "policy", step, guides.blend)
    write_arriving(_AtOnce(alone), "policy", step)
    write_on(direct, step, blend=guides.blend)
    assert arrivals.written == 3
    assert all(torch.equal(a.tokens(), b.tokens()) for a, b in zip(served, direct, strict=True))
    assert not all(torch.equal(a.tokens(), b.tokens()) for a, b in zip(served, alone, strict=True))
