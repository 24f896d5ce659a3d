"""Models that see, one small random one of each family: transformers' own numbers, whatever path is taken; sampler =
trainer; pictures told apart by their content; pictures that the tower, the processor or a cut would get wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor
from vlms import FAMILIES, picture_file, write_vlm

from burnish.core.messages import Message
from burnish.core.task import Task
from burnish.engine.local import LocalEngine
from burnish.engine.request import Request
from burnish.forward import plain
from burnish.forward.outputs import outputs
from burnish.forward.paths import paths_of
from burnish.forward.runner import ModelRunner, runner_of
from burnish.forward.sight import sight_of
from burnish.media.ids import FIRST, CutPicture, runs_of
from burnish.media.store import STORE, key_for
from burnish.models.chat_pictures import spelled_out
from burnish.models.conversation import conversation_pieces
from burnish.models.load import load_chat, load_model
from burnish.models.path_check import check

SLOW = {"gemma3"}  # families whose pictures are read by the whole model, row by row
CLOSE = 1e-5


class Seeing:
    """A family's small model, and what the tests ask of it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.module, self.chat = load_model(folder, 0, torch.device("cpu")), load_chat(folder)
        self.runner: ModelRunner = runner_of(self.module)
        self.note = check(self.module, self.runner, 512, True, self.chat.pictures.example())
        self.a = picture_file(folder, 1)
        self.b = picture_file(folder, 2, width=60, height=20)

    def messages(self, *said: str) -> tuple[Message, ...]:
        parts = [
            {"type": "image", "image": one} if one.endswith(".png") else {"type": "text", "text": one} for one in said
        ]
        return ({"role": "user", "content": parts},)

    def prompt(self, *said: str) -> Tensor:
        return self.chat.prompt(Task("question", self.messages(*said), {}, "k"))

    def own(self, row: Tensor, files: Sequence[str]) -> Tensor:
        """transformers' own log-probs of a row, whose pictures its processor reads together, from their files."""
        import transformers

        reader = self.chat.pictures.reader
        assert reader is not None
        model: Any = transformers.AutoModelForImageTextToText.from_pretrained(self.folder, attn_implementation="eager")
        seen = reader.processor(
            text=["".join([reader.placeholder] * len(files))],
            images=[Image.open(file).convert("RGB") for file in files],
            return_tensors="pt",
        )
        ids = torch.where(row >= FIRST, reader.soft, row)[None]
        kinds = {name: (row >= FIRST).long()[None] for name in ("token_type_ids", "mm_token_type_ids") if name in seen}
        inputs = {k: v for k, v in seen.items() if k not in ("input_ids", "attention_mask", *kinds)}
        with torch.no_grad():
            logits = model(input_ids=ids, **inputs, **kinds).logits[0]
        return torch.log_softmax(logits[:-1], -1).gather(-1, ids[0, 1:, None])[:, 0]


@pytest.fixture(scope="module", params=list(FAMILIES))
def seeing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seeing:
    return Seeing(request.param, write_vlm(request.param, tmp_path_factory.mktemp(request.param)))


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Seeing:
    return Seeing("llava", write_vlm("llava", tmp_path_factory.mktemp("llava1")))


def _text(row: Tensor) -> Tensor:
    """The tokens that are asked about: text, from the second on."""
    return (torch.arange(len(row)) > 0) & (row < FIRST)


@torch.no_grad()
def _logp(runner: ModelRunner, rows: list[Tensor], packed: bool) -> list[Tensor]:
    masks = [_text(row) for row in rows]
    logp = outputs(runner, rows, masks, {"logp"}, packed=packed)["logp"]
    return list(logp.split([int(mask.sum()) for mask in masks]))


def test_log_probs_are_those_of_transformers_own_forward(seeing: Seeing) -> None:
    """Two pictures of different sizes in one row, a row that shares the first of them, and one of text alone."""
    both = seeing.prompt("What is ", seeing.a, "and ", seeing.b, "?")
    one = seeing.prompt("What is ", seeing.a, "like?")
    words = seeing.prompt("Nothing?")
    wanted = [
        seeing.own(both, [seeing.a, seeing.b])[_text(both)[1:]],
        seeing.own(one, [seeing.a])[_text(one)[1:]],
    ]
    assert float(torch.cat(wanted).std()) > 0.3  # a model that says the same of everything would hide mistakes
    for packed in (True, False):
        if seeing.name in SLOW:
            continue
        found = _logp(seeing.runner, [both, words, one], packed)
        for got, want in zip((found[0], found[2]), wanted, strict=True):
            assert float((got - want).abs().max()) < CLOSE
    with torch.no_grad():
        alone = plain.outputs(seeing.module, [both, one], [_text(both), _text(one)], {"logp"})["logp"]
    assert float((alone - torch.cat(wanted)).abs().max()) < CLOSE


def test_the_check_at_load_finds_the_paths_that_are_right(seeing: Seeing) -> None:
    paths = paths_of(seeing.module)
    fast = seeing.name not in SLOW
    assert (paths.packed, paths.padded, paths.engine) == (fast, fast, fast)
    assert bool(seeing.note) != fast and ("one row at a time" in seeing.note) != fast


def test_the_sampler_records_the_trainers_log_probs(seeing: Seeing) -> None:
    """Replies to prompts with pictures, several to one prompt; the log-probs that came with them are the trainer's."""
    prompts = [
        seeing.prompt("What is ", seeing.a, "?"),
        seeing.prompt(seeing.b, seeing.a),
        seeing.prompt("No picture?"),
    ]
    requests = [Request(prompt, 10 * i + k, 6) for i, prompt in enumerate(prompts) for k in range(2)]
    samples = LocalEngine(seeing.runner, seeing.chat, 512).generate(requests)
    rows = [torch.cat([r.prompt, s.tokens]) for r, s in zip(requests, samples, strict=True)]
    masks = [torch.arange(len(row)) >= len(r.prompt) for row, r in zip(rows, requests, strict=True)]
    with torch.no_grad():
        logp = outputs(seeing.runner, rows, masks, {"logp"})["logp"]
    assert float((logp - torch.cat([s.logp for s in samples])).abs().max()) < CLOSE
    alone = LocalEngine(seeing.runner, seeing.chat, 512).generate(requests[1:2])[0]
    assert alone.tokens.tolist() == samples[1].tokens.tolist()  # whatever else is in the batch


def test_rows_that_differ_only_in_pixels_share_no_token_of_them(seeing: Seeing) -> None:
    one, other = seeing.prompt("What is ", seeing.a, "?"), seeing.prompt("What is ", seeing.b, "?")
    media = [set(row[row >= FIRST].tolist()) for row in (one, other)]
    assert all(media) and not media[0] & media[1]
    again = seeing.prompt("What is ", seeing.a, "?")
    assert torch.equal(one, again)


def test_the_tokens_read_as_the_conversation(seeing: Seeing) -> None:
    row = seeing.prompt("What is ", seeing.a, "?")
    assert "What is" in seeing.chat.text(row) and seeing.chat.text(row).count("<image>") == 1
    assert f"[picture 44x36: {int((row >= FIRST).sum())} tokens]" in spelled_out(seeing.chat.tokenizer, row)


def test_a_placeholder_that_a_user_spells_is_text(llava: Seeing) -> None:
    row = llava.prompt("Write <image> for ", llava.a, ".")
    reader = llava.chat.pictures.reader
    assert reader is not None and reader.marker not in row.tolist() and len(runs_of(row.numpy())) == 1


def test_a_picture_is_read_by_the_processor_and_the_tower_once(llava: Seeing, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, sight = llava.chat.pictures.reader, sight_of(llava.module)
    assert reader is not None and sight is not None
    read: list[int] = []
    made = type(reader)._made
    monkeypatch.setattr(type(reader), "_made", lambda *given: read.append(1) or made(*given))
    file = picture_file(llava.folder, 77)
    prompts = [llava.prompt("What is ", file, "?") for _ in range(3)]
    assert len(read) == 1
    seen: list[int] = []
    computed = sight._computed
    monkeypatch.setattr(sight, "_computed", lambda ready: seen.append(ready.key) or computed(ready))
    llava.runner.weights_moved()
    requests = [Request(prompt, k, 3) for k, prompt in enumerate(prompts)]
    samples = LocalEngine(llava.runner, llava.chat, 512).generate(requests)
    _logp(llava.runner, [torch.cat([p, s.tokens]) for p, s in zip(prompts, samples, strict=True)], True)
    assert len(seen) == 1


def test_features_are_computed_again_once_the_tower_has_moved(llava: Seeing) -> None:
    """A stale cache would keep the old log-probs."""
    row = llava.prompt("What is ", llava.a, "?")
    before = _logp(llava.runner, [row], True)[0]
    connector = next(p for name, p in llava.module.named_parameters() if "projector" in name and p.ndim > 1)
    kept = connector.data.clone()
    connector.data.mul_(1.5)
    llava.runner.weights_moved()
    moved = _logp(llava.runner, [row], True)[0]
    connector.data.copy_(kept)
    llava.runner.weights_moved()
    assert not torch.allclose(before, moved, atol=1e-3)
    assert torch.equal(before, _logp(llava.runner, [row], True)[0])


def test_gradients_reach_the_tower_and_are_those_of_the_whole_model(llava: Seeing) -> None:
    """The same picture in two rows of a pack: its gradient is the sum over both, as in transformers' own forward."""
    rows = [llava.prompt("What is ", llava.a, "?"), llava.prompt("And ", llava.a, ", then?")]
    masks = [_text(row) for row in rows]

    def gradient(logp: Tensor) -> Tensor:
        llava.module.zero_grad()
        logp.sum().backward()
        named = llava.module.named_parameters()
        return torch.cat([p.grad.flatten() for name, p in named if "vision" in name and p.grad is not None])

    packed = gradient(outputs(llava.runner, rows, masks, {"logp"})["logp"])
    whole = gradient(plain.outputs(llava.module, rows, masks, {"logp"})["logp"])
    assert float(whole.norm()) > 1 and float((packed - whole).norm()) < 1e-5 * float(whole.norm())


def test_a_row_that_ends_inside_a_picture_is_refused(llava: Seeing) -> None:
    row = llava.prompt("What is ", llava.a, "?")
    last = int(runs_of(row.numpy())[0].at[-1])
    with pytest.raises(CutPicture, match="ends inside a picture"):
        _logp(llava.runner, [row[:last]], True)
    with pytest.raises(CutPicture, match="ends inside a picture"):
        LocalEngine(llava.runner, llava.chat, 512).generate([Request(row[:last], 0, 2)])


def test_a_picture_is_never_asked_about(llava: Seeing) -> None:
    row = llava.prompt("What is ", llava.a, "?")
    with pytest.raises(ValueError, match="read and never written"):
        outputs(llava.runner, [row], [torch.arange(len(row)) > 0], {"logp"})


def test_demonstrations_train_on_text_alone(llava: Seeing) -> None:
    """Pictures in two turns and in a tool's result; with `everything` the text around them counts, and they do not."""
    picture = {"type": "image", "image": llava.a}
    messages: list[Message] = [
        {"role": "user", "content": [picture, {"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": "Red."},
        {"role": "user", "content": [{"type": "text", "text": "And "}, {"type": "image", "image": llava.b}]},
        {"role": "assistant", "content": "Blue."},
    ]
    for weights in ([0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]):
        (pieces,) = conversation_pieces(llava.chat, messages, weights, headers=all(weights))
        row = torch.cat([piece.tokens for piece in pieces])
        assert len(runs_of(row.numpy())) == 2
        trained = torch.cat([piece.tokens for piece in pieces if piece.weight])
        assert len(trained) and bool((trained < FIRST).all())
        said = llava.chat.text(trained)
        assert "Red." in said and "Blue." in said and ("What?" in said) == all(weights)


def test_an_observation_may_show_a_picture(llava: Seeing) -> None:
    seen = llava.chat.observation([{"role": "user", "content": [{"type": "image", "image": llava.b}]}])
    assert len(runs_of(seen.numpy())) == 1


def test_a_model_that_reads_text_refuses_pictures(llava: Seeing, small_model: Path) -> None:
    chat = load_chat(small_model)
    with pytest.raises(ValueError, match="the model reads text alone"):
        chat.prompt(Task("question", llava.messages("What is ", llava.a), {}, "k"))
    module = load_model(small_model, 0, torch.device("cpu"))
    row = llava.prompt("What is ", llava.a)
    with pytest.raises(ValueError, match="the model reads text alone"):
        outputs(runner_of(module), [row], [_text(row)], {"logp"})


def test_another_models_pictures_are_refused(llava: Seeing, tmp_path: Path) -> None:
    """A row of one model's ids, read by a model with another processor: its tower makes another number of vectors."""
    other = Seeing("internvl", write_vlm("internvl", tmp_path))
    seen = other.prompt(other.a)
    row = torch.cat([torch.tensor([5]), seen[seen >= FIRST], torch.tensor([6, 7])])
    with pytest.raises(ValueError, match="do not belong together"):
        _logp(llava.runner, [row], True)


def test_a_file_that_changes_is_another_picture(llava: Seeing) -> None:
    file = picture_file(llava.folder, 5)
    before = llava.prompt(file)
    Image.open(llava.b).save(file)
    assert not set(before[before >= FIRST].tolist()) & set(llava.prompt(file).tolist())


def test_black_and_1x1_pictures_are_pictures(seeing: Seeing) -> None:
    """Idefics' towers take a tile of zeros for padding and drop it."""
    for size in ((1, 1), (40, 30)):
        file = seeing.folder / f"black{size[0]}.png"
        Image.new("RGB", size).save(file)
        row = seeing.prompt("What is ", str(file), "?")
        assert bool(torch.isfinite(_logp(seeing.runner, [row], seeing.name not in SLOW)[0]).all())


def test_tiles_of_zeros_are_not_dropped(tmp_path: Path) -> None:
    """Without normalisation black is 0 throughout, which Idefics3 takes for padding: an error deep in its code."""
    import json

    folder = write_vlm("idefics3", tmp_path)
    told = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps({**told, "do_normalize": False}))
    seeing = Seeing("idefics3", folder)
    file = tmp_path / "black.png"
    Image.new("RGB", (40, 30)).save(file)
    row = seeing.prompt(str(file))
    assert bool(torch.isfinite(_logp(seeing.runner, [row], True)[0]).all())


def test_the_key_tells_processors_apart(llava: Seeing) -> None:
    reader = llava.chat.pictures.reader
    assert reader is not None
    ready = reader.read(llava.a)
    assert ready.reader == reader.identity and STORE.known(ready.key)
    assert key_for("same content", "one") != key_for("same content", "other")
