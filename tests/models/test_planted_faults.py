"""The faults that other trainers had, planted one by one: each is seen in the log-probs, or is an error.

The row has two pictures of one size. `wanted` is what transformers' own forward says of the text behind them, from the
files; without a fault burnish's log-probs are within 1e-5 of it. A fault that moved them by less than 1e-3 would not be
noticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from vlms import picture_file, write_vlm

from burnish.core.task import Task
from burnish.engine.local import LocalEngine
from burnish.engine.request import Request
from burnish.forward.outputs import outputs
from burnish.forward.runner import ModelRunner, runner_of
from burnish.forward.sight import Features, Sight, sight_of
from burnish.media.ids import FIRST, CutPicture
from burnish.media.processor import PictureReader
from burnish.media.store import STORE, Store
from burnish.models.load import load_chat, load_model

SEEN = 1e-3


class Planted:
    """A small LLaVA, two pictures, and what is right for a row that has both."""

    def __init__(self, folder: Path) -> None:
        self.folder = write_vlm("llava", folder / "llava")
        self.module = load_model(self.folder, 0, torch.device("cpu"))
        self.runner: ModelRunner = runner_of(self.module)
        self.a, self.b = picture_file(folder, 1), picture_file(folder, 2)
        self.row = self.prompt(self.a, self.b)
        self.text = (torch.arange(len(self.row)) > 0) & (self.row < FIRST)
        self.wanted = self.own([self.a, self.b])

    def prompt(self, *files: str, reader: PictureReader | None = None) -> Tensor:
        chat = load_chat(self.folder)
        if reader is not None:
            chat.pictures.reader = reader
        parts: list[dict[str, str]] = [{"type": "text", "text": "Look: "}]
        for file in files:
            parts += [{"type": "image", "image": file}, {"type": "text", "text": "and then?"}]
        return chat.prompt(Task("question", ({"role": "user", "content": parts},), {}, "k"))

    def own(self, files: list[str]) -> Tensor:
        """From transformers' own forward and the processor's own reading of the files."""
        import transformers

        reader = load_chat(self.folder).pictures.reader
        assert reader is not None
        model: Any = transformers.AutoModelForImageTextToText.from_pretrained(self.folder, attn_implementation="eager")
        images = [Image.open(file).convert("RGB") for file in files]
        seen = reader.processor(text=[reader.placeholder * len(files)], images=images, return_tensors="pt")
        ids = torch.where(self.row >= FIRST, reader.soft, self.row)[None]
        with torch.no_grad():
            logits = model(input_ids=ids, pixel_values=seen["pixel_values"]).logits[0]
        return torch.log_softmax(logits[:-1], -1).gather(-1, ids[0, 1:, None])[:, 0][self.text[1:]]

    @torch.no_grad()
    def off(self, row: Tensor) -> float:
        """How far the log-probs of a row's text are from what is right for the row without a fault."""
        sight = sight_of(self.module)
        assert sight is not None
        sight._kept.clear()
        text = (torch.arange(len(row)) > 0) & (row < FIRST)
        return float((outputs(self.runner, [row], [text], {"logp"})["logp"] - self.wanted).abs().max())


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return Planted(tmp_path_factory.mktemp("planted"))


@pytest.fixture(autouse=True)
def _as_before(planted: Planted) -> Iterator[None]:
    yield
    sight = sight_of(planted.module)
    assert sight is not None
    sight._kept.clear()


def test_without_a_fault_nothing_is_off(planted: Planted) -> None:
    assert planted.off(planted.row) < 1e-5


def test_pictures_that_are_not_seen(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds of tokens padded on the other side: the model reads the table where it should read the tower."""
    monkeypatch.setattr(Sight, "features", lambda self, key: Features(torch.zeros(STORE.of(key).count, 64)))
    assert planted.off(planted.row) > SEEN


def test_swapped_pictures(planted: Planted) -> None:
    assert planted.off(planted.prompt(planted.b, planted.a)) > SEEN


def test_the_first_picture_for_both(planted: Planted) -> None:
    assert planted.off(planted.prompt(planted.a, planted.a)) > SEEN


def test_a_row_that_is_expanded_again(planted: Planted) -> None:
    """Nothing is left to expand: an expanded row has no placeholder, and its pictures are too many for it."""
    reader = load_chat(planted.folder).pictures.reader
    assert reader is not None and not bool((planted.row == reader.marker).any())
    with pytest.raises(ValueError, match="the chat template writes 0 pictures of the 2"):
        reader.spliced(planted.row.tolist(), [planted.a, planted.b])


def test_a_picture_that_is_resized_before_the_processor(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another reader's picture is another key, so what one process made of it cannot serve another one unnoticed."""
    reader = PictureReader(planted.folder, Store())
    processed = PictureReader._processed
    monkeypatch.setattr(PictureReader, "_processed", lambda self, image: processed(self, image.resize((9, 7))))
    shrunk = reader.read(planted.a)
    monkeypatch.undo()
    own = PictureReader(planted.folder, Store()).read(planted.a)
    assert shrunk.key == own.key  # the file and the processor are the same: only the numbers tell
    monkeypatch.setattr(STORE, "of", lambda key, real=STORE.of: shrunk if key == own.key else real(key))
    assert planted.off(planted.row) > SEEN


def test_a_processor_of_another_configuration(planted: Planted, tmp_path: Path) -> None:
    """It gives pictures other keys; a model refuses those of a processor that is not its own."""
    reader = load_chat(planted.folder).pictures.reader
    assert reader is not None
    other = PictureReader(planted.folder, Store())
    other.files["preprocessor_config.json"] = other.files["preprocessor_config.json"] + b" "
    assert other.read(planted.a).key != reader.read(planted.a).key


def test_features_of_a_tower_that_has_moved(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    connector = next(p for name, p in planted.module.named_parameters() if "projector" in name and p.ndim > 1)
    kept = connector.data.clone()
    assert planted.off(planted.row) < 1e-5
    try:
        connector.data.mul_(1.5)
        planted.runner.weights_moved()
        moved = planted.off(planted.row)
        connector.data.copy_(kept)
        planted.runner.weights_moved()
        assert planted.off(planted.row) < 1e-5  # kept again
        connector.data.mul_(1.5)
        monkeypatch.setattr(Sight, "forget", lambda self: None)
        planted.runner.weights_moved()  # the fault: nothing is dropped
        mask = planted.text
        with torch.no_grad():
            stale = outputs(planted.runner, [planted.row], [mask], {"logp"})["logp"]
        assert moved > SEEN and float((stale - planted.wanted).abs().max()) < SEEN
    finally:
        connector.data.copy_(kept)
        planted.runner.weights_moved()


def test_a_cut_picture(planted: Planted) -> None:
    places = (planted.row >= FIRST).nonzero()[:, 0]
    with pytest.raises(CutPicture):
        planted.off(planted.row[: int(places[-1])])
    holed = torch.cat([planted.row[: int(places[3])], planted.row[int(places[4]) :]])
    with pytest.raises(CutPicture, match="not in order"):
        planted.off(holed)


def test_a_cache_of_one_picture_for_another(planted: Planted) -> None:
    """Prompts that differ in their pixels alone, side by side: their replies have the log-probs of each alone."""
    prompts = [planted.prompt(planted.a, planted.b), planted.prompt(planted.b, planted.b)]
    engine = LocalEngine(planted.runner, load_chat(planted.folder), 512)
    samples = engine.generate([Request(prompt, 7, 3) for prompt in prompts])
    apart = []
    for prompt, sample in zip(prompts, samples, strict=True):
        row = torch.cat([prompt, sample.tokens])
        mask = torch.arange(len(row)) >= len(prompt)
        with torch.no_grad():
            own = outputs(planted.runner, [row], [mask], {"logp"})["logp"]
            row[: len(prompt)] = prompts[0] if prompt is prompts[1] else prompts[1]
            other = outputs(planted.runner, [row], [mask], {"logp"})["logp"]
        assert torch.allclose(own, sample.logp, atol=1e-5)
        apart.append(float((other - sample.logp).abs().max()))
    assert max(apart) > SEEN


def test_pictures_that_a_process_has_not_read(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STORE, "of", Store().of)
    with pytest.raises(ValueError, match="has not read; its task must be drawn again"):
        planted.off(planted.row)
