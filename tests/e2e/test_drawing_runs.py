"""Whole runs of a model that draws: every kind of method, stopped and resumed, saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flow_models import flow_model
from runs import go, tensors

import burnish
from burnish.commands.chat import ChatOptions, Conversation
from burnish.commands.pictured import in_blocks
from burnish.config.options import Options
from burnish.core.roles import trained
from burnish.core.types import Group, Task, Trace
from burnish.core.types_json import group_from_record, group_to_record
from burnish.engine.request import Request
from burnish.methods.table import find
from burnish.models.build import build
from burnish.models.load import load_model
from burnish.models.model import Model
from burnish.store.reader import open_store
from burnish.tasks.table import source

LEVEL = '''
def level(completions, **columns):
    """How red a picture is: a drawn reply is a PNG inside of a text."""
    import base64, io
    from PIL import Image
    pictures = [Image.open(io.BytesIO(base64.b64decode(c.partition(",")[2]))) for c in completions]
    return [p.resize((1, 1)).getpixel((0, 0))[0] / 255 for p in pictures]
'''


@pytest.fixture(scope="module")
def drawing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return flow_model(tmp_path_factory.mktemp("drawing"))


@pytest.mark.parametrize("method", ["sft", "diffusion_dpo", "flow_grpo", "texforce"])
def test_stop_and_resume_is_straight_through(method: str, drawing: Path, tmp_path: Path) -> None:
    """Bit for bit: noise is a function of request and step, levels of row and step."""
    more: dict[str, Any] = {}
    if method in ("flow_grpo", "texforce"):
        (tmp_path / "red.py").write_text(LEVEL)
        more = {"reward": f"{tmp_path / 'red.py'}:level", "n": 2}
    go(method, drawing, tmp_path / "straight", task="paint:1", steps=3, **more)
    go(method, drawing, tmp_path / "stopped", task="paint:1", steps=2, **more)
    burnish.resume(tmp_path / "stopped", steps=3)
    straight, stopped = (tensors(tmp_path / name / "model") for name in ("straight", "stopped"))
    before = tensors(drawing)
    assert straight == stopped != before
    moved = {name for name in before if straight[name] != before[name]}
    text = {name for name in before if "/text_encoder." in name or "/embed_tokens." in name}
    assert (moved <= text) == (method == "texforce")
    if method == "flow_grpo":
        with open_store(tmp_path / "straight") as store:
            assert store.drawn(1, 0) != store.drawn(1, 1) and store.drawn(1, 0)[:4] == b"\x89PNG"  # type: ignore[index]
            assert store.pictures(1) == [] and store.drawn(1, 2) is None
    assert type(load_model(tmp_path / "straight" / "model", 0, torch.device("cpu"))).__name__ == "FlowModel"


def _model(drawing: Path, method: str, **options: Any) -> Model:
    built = find(method).build(source("paint:1"))
    settings = Options(lr=1e-4, token_budget=512, max_new_tokens=8, **options).settings(built)
    return build({"policy": built.models["policy"]}, drawing, settings, device="cpu")["policy"]


def test_how_pictures_are_drawn_is_an_option(drawing: Path) -> None:
    def drawn(method: str, **options: Any) -> Any:
        return _model(drawing, method, **options).generate([Request(torch.arange(4, 9), 5, 8)])[0]

    plain = drawn("flow_grpo")
    assert (plain.canvas.sampler, plain.canvas.noise, len(plain.tokens)) == ("flow_sde", 0.7, 3)
    assert drawn("ddpo").canvas.sampler == "ddim" and drawn("rlcm").canvas.noise == 1.0
    assert drawn("ddpo", sampler="cps").canvas.sampler == "cps"
    assert len(drawn("flow_grpo", denoise_steps=7).tokens) == 6
    assert drawn("flow_grpo", denoise_noise=0.2).canvas.noise == 0.2
    guided = drawn("flow_grpo", guidance=3.0)
    assert guided.canvas.guidance == 3.0 and not torch.equal(guided.canvas.states, plain.canvas.states)
    summed = drawn("flow_grpo", reduce="sum")
    assert torch.allclose(summed.logp, plain.logp * 768, rtol=1e-4)


def test_a_drawn_reply_goes_through_json(drawing: Path) -> None:
    sample = _model(drawing, "flow_grpo").generate([Request(torch.arange(4, 9), 5, 8)])[0]
    from burnish.core.types import Turn

    turns = (Turn(torch.arange(4, 9), "task"), Turn(sample.tokens, "policy", sample.logp, canvas=sample.canvas))
    group = Group(Task("question", "x", {}, "x"), [Trace(turns)])
    again = group_from_record(group_to_record(group)).traces[0].turns[1].canvas
    assert torch.equal(again.states, sample.canvas.states) and again.levels == sample.canvas.levels  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"method": "ppo"}, "cannot be a critic"),
        ({"engine": "process"}, "use --engine local"),
        ({"top_p": 0.9}, "leave out --top-p"),
        ({"only": "tower"}, "its parts are text, picture"),
        ({"denoise_noise": 0.0}, "without noise"),
    ],
)
def test_what_is_not_known_is_refused_in_a_sentence(
    more: dict[str, Any], words: str, drawing: Path, tmp_path: Path
) -> None:
    options = {key: value for key, value in more.items() if key != "method"}
    with pytest.raises(ValueError, match=words):
        go(more.get("method", "flow_grpo"), drawing, tmp_path / "run", task="paint:1", **options)


def test_a_role_without_a_denoiser_ignores_its_parts() -> None:
    """A model of words has no caption to read apart: `texforce` trains all of it."""
    assert trained().only == "" and find("texforce").build(source("add:1")).models["policy"].only == "text"


def test_a_caption_in_chat_becomes_a_file(drawing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture for each caption, shown in the terminal as half blocks; the same caption again is another picture."""
    monkeypatch.chdir(tmp_path)
    conversation = Conversation(_model(drawing, "flow_grpo"), ChatOptions(temperature=1.0))
    said = [conversation.say("Paint 1 red square on grey.") for _ in range(2)]
    assert said == [f"{tmp_path}/drawn-{number}.png (16 x 16 pixels)" for number in (1, 2)]
    files = [(tmp_path / f"drawn-{number}.png").read_bytes() for number in (1, 2)]
    assert files[0] != files[1] and conversation.tokens == []
    blocks = in_blocks(np.array([[[1, 2, 3]], [[4, 5, 6]]], dtype=np.uint8))
    assert blocks.plain == "\u2580\n" and str(blocks.spans[0].style) == "rgb(1,2,3) on rgb(4,5,6)"


def test_it_learns_to_paint_redder(drawing: Path, tmp_path: Path) -> None:
    """Six steps of 32 pictures: the share of red goes from 0.50 to 0.57, and higher in most steps."""
    (tmp_path / "red.py").write_text(LEVEL)
    told = {"reward": f"{tmp_path / 'red.py'}:level", "n": 8, "prompts": 4, "lr": 0.003, "eval_tasks": 0}
    go("ddpo", drawing, tmp_path / "run", task="paint:1", steps=6, **told)
    with open_store(tmp_path / "run") as store:
        query = "SELECT value FROM metrics WHERE name = 'reward' ORDER BY step"
        rewards = [row["value"] for row in store.sql(query)]
    assert len(rewards) == 6 and rewards[-1] > rewards[0] + 0.04
    assert sum(b > a for a, b in zip(rewards[:-1], rewards[1:], strict=True)) >= 4
