"""Whole runs of models that see: no method knows of pictures, so one of each kind is enough; stop and resume; adapters
and parts; what is saved loads in transformers without burnish.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import COIN, go, rows, tensors
from safetensors.torch import load_file
from vlms import picture_file, write_vlm

import burnish
from burnish.models.load import load_chat, load_model
from burnish.store.reader import open_store

COLOURS = ("red", "blue")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pictures")


@pytest.fixture(scope="module")
def llava(folder: Path) -> Path:
    return write_vlm("llava", folder / "llava")


def _data(folder: Path, **more: Any) -> str:
    """Six rows, each with a picture of its own; every column that a method may want."""
    made = []
    for i in range(6):
        picture_file(folder, 100 + i)
        row = {"prompt": f"What is in <image>, number {i % 2}?", "images": [f"picture{100 + i}.png"]}
        made.append(row | {"answer": COLOURS[i % 2], "completion": COLOURS[i % 2]} | more)
    return rows(folder / "rows.jsonl", *made)


def _pairs(folder: Path) -> str:
    made = []
    for i in range(6):
        picture_file(folder, 100 + i)
        row = {"prompt": "What is in <image>?", "images": [f"picture{100 + i}.png"]}
        made.append(row | {"chosen": COLOURS[i % 2], "rejected": COLOURS[1 - i % 2]})
    return rows(folder / "pairs.jsonl", *made)


def _moved(out: Path, start: Path, part: str) -> float:
    """How far the weights of a part went."""
    before, after = (load_file(path / "model.safetensors") for path in (start, out / "model"))
    names = [name for name in before if part in name]
    assert names and set(before) == set(after)
    return max(float((before[name].float() - after[name].float()).abs().max()) for name in names)


@pytest.mark.parametrize("method", ["sft", "dpo", "reward_model", "ppo", "grpo", "opd"])
def test_no_method_knows_of_pictures(method: str, folder: Path, llava: Path, tmp_path: Path) -> None:
    """Demonstrations, pairs, a reward model, a critic, a group and a teacher: two steps each; the tower moves."""
    task = _pairs(folder) if method in ("dpo", "reward_model") else _data(folder)
    more: dict[str, Any] = {"teacher": str(llava)} if method == "opd" else {}
    if method in ("ppo", "grpo"):
        file = folder / "coin.py"
        file.write_text(COIN)
        more["reward"] = f"{file}:coin"
    if method == "opd":
        more["temperature"] = 1.0
    go(method, llava, tmp_path / "run", task=task, save_every=0, **more)
    if method == "reward_model":
        module = load_model(tmp_path / "run" / "model", 1, torch.device("cpu"))
        assert float(module.score.weight.abs().max()) > 0  # type: ignore[union-attr]
        return
    if method != "opd":  # a student that is its own teacher learns nothing
        assert _moved(tmp_path / "run", llava, "vision_tower") > 0 < _moved(tmp_path / "run", llava, "language_model")
    import transformers

    loaded = transformers.AutoModelForImageTextToText.from_pretrained(tmp_path / "run" / "model")
    processor = transformers.AutoProcessor.from_pretrained(tmp_path / "run" / "model", backend="pil")
    assert type(loaded).__name__ == "LlavaForConditionalGeneration" and processor.image_token == "<image>"


@pytest.mark.parametrize(("only", "moves"), [("connector", {"multi_modal_projector"}), ("language", {"language"})])
def test_only_a_part_learns(only: str, moves: set[str], folder: Path, llava: Path, tmp_path: Path) -> None:
    go("sft", llava, tmp_path / "run", task=_data(folder), save_every=0, only=only)
    for part in ("vision_tower", "multi_modal_projector", "language"):
        assert (_moved(tmp_path / "run", llava, part) > 0) == (part in moves)


def test_adapters_are_those_of_the_language_half(folder: Path, llava: Path, tmp_path: Path) -> None:
    go("sft", llava, tmp_path / "run", task=_data(folder), save_every=0, lora=4)
    named = load_file(tmp_path / "run" / "model" / "adapter_model.safetensors")
    assert named and all("language_model" in name for name in named)
    merged = load_model(tmp_path / "run" / "model", 0, torch.device("cpu"))
    assert load_chat(tmp_path / "run" / "model").pictures.reader is not None and merged.training is False


def test_stop_and_resume_is_straight_through(folder: Path, llava: Path, tmp_path: Path) -> None:
    """Replies sampled with pictures, bit for bit; the pictures are read again by the second process' tasks."""
    file = folder / "coin.py"
    file.write_text("def coin(completions):\n    return [float(len(text) % 2) for text in completions]\n")
    how = {"task": _data(folder), "reward": f"{file}:coin"}
    go("grpo", llava, tmp_path / "straight", steps=3, **how)
    go("grpo", llava, tmp_path / "stopped", steps=2, **how)
    burnish.resume(tmp_path / "stopped", steps=3)
    straight, stopped = (tensors(tmp_path / name / "model") for name in ("straight", "stopped"))
    assert straight == stopped


@pytest.mark.parametrize("how", [{"lag": 1}, {"chunk": 3}])
def test_replies_of_earlier_weights_keep_their_pictures(
    how: dict[str, int], folder: Path, llava: Path, tmp_path: Path
) -> None:
    """Sampled ahead, or continued a step later with newer weights: the same bits again, pictures on record."""
    file = folder / "coin.py"
    file.write_text("def coin(completions):\n    return [float(len(text) % 2) for text in completions]\n")
    told = {"task": _data(folder), "reward": f"{file}:coin", **how}
    for name in ("once", "again"):
        go("grpo", llava, tmp_path / name, steps=3, **told)
    once, again = (tensors(tmp_path / name / "model") for name in ("once", "again"))
    assert once == again != tensors(llava)
    with open_store(tmp_path / "once") as store:
        assert all("picture10" in row["prompt"] for row in store.sql("SELECT prompt FROM groups"))


def test_the_store_shows_prompts_with_pictures(folder: Path, llava: Path, tmp_path: Path) -> None:
    go("sft", llava, tmp_path / "run", task=_data(folder), save_every=0)
    with open_store(tmp_path / "run") as store:
        (prompt,) = {row["prompt"] for row in store.sql("SELECT prompt FROM groups LIMIT 1")}
        told = [json.loads(row["turns"]) for row in store.sql("SELECT turns FROM traces LIMIT 1")]
        assert store.pictures(1)[0].startswith(b"\x89PNG") and not store.pictures(999)
    assert "picture10" in prompt and told[0][0]["tokens"] > 16


def test_a_text_model_given_pictures_is_one_sentence(folder: Path, small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"rows.jsonl, line \d: .*the model reads text alone"):
        go("sft", small_model, tmp_path / "run", task=_data(folder))


def test_rows_that_would_be_cut_inside_a_picture_are_left_out(folder: Path, llava: Path, tmp_path: Path) -> None:
    made = [{"prompt": "What?", "completion": "x"} for _ in range(3)]
    made += [{"prompt": "What is in <image>?", "images": ["picture100.png"], "completion": "x"}]
    picture_file(folder, 100)
    for i, row in enumerate(made):
        row["prompt"] = f"{row['prompt']} {i}"
    task = rows(folder / "mixed.jsonl", *made)
    run = go("sft", llava, tmp_path / "run", task=task, max_length=24, on_long="truncate", save_every=0)
    assert len(run.metrics) == 2
