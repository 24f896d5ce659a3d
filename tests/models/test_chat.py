"""Between text and tokens: a conversation rendered turn by turn is the conversation rendered at once."""

from __future__ import annotations

import json
import random
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from burnish.core.types import Task
from burnish.models.chat import Chat
from burnish.models.load import load_chat


@pytest.fixture(params=["small", "tiny"])
def chat(request: pytest.FixtureRequest, small_model: Path):
    from burnish.models.known_models import resolve

    return load_chat(small_model if request.param == "small" else resolve("tiny"))


def test_turns_in_pieces_equal_the_whole_conversation(chat) -> None:
    asked = Task("question", "first question", {}, "k")
    pieces = [chat.prompt(asked), chat.reply("an answer"), chat.observation("and then?"), chat.reply("another")]
    messages = [
        {"role": "user", "content": "first question"},
        {"role": "assistant", "content": "an answer"},
        {"role": "user", "content": "and then?"},
        {"role": "assistant", "content": "another"},
    ]
    whole = chat.tokenizer.apply_chat_template(messages, tokenize=False)
    assert chat.tokenizer.decode(torch.cat(pieces).tolist()).strip() == whole.strip()


def test_a_reply_ends_with_a_stop_and_reads_as_it_was_written(chat) -> None:
    reply = chat.reply("12 + 7 = 19")
    assert int(reply[-1]) in chat.stops
    assert chat.text(reply) == "12 + 7 = 19"


def test_texts_are_what_the_tokenizer_decodes(chat) -> None:
    size = len(chat.spelling.pieces)
    assert size > 0, "both tokenizers lay tokens end to end"

    def same(ids: list[int]) -> bool:
        said = chat.text(torch.tensor(ids, dtype=torch.long))
        return bool(said == chat.tokenizer.decode(ids, skip_special_tokens=True))

    said = chat.tokenizer.encode("caf\u00e9 \u4f60\u597d \U0001f600, 3 + 4", add_special_tokens=False)
    stop = chat.stops[0]
    dice = random.Random(0)
    for ids in ([], [stop], said, [*said, stop], [stop, *said[:-3]], [said[0], size, size + 7], list(range(size))):
        assert same(ids)
    for _ in range(200):
        assert same([dice.randrange(size) for _ in range(dice.randrange(40))])


@pytest.mark.parametrize("decoder", ["Fuse", "Metaspace", "WordPiece", None])
@pytest.mark.parametrize("tidy", [False, True])
def test_texts_of_transformers_tokenizers_are_what_they_decode(decoder: str | None, tidy: bool) -> None:
    words = {"<end>": 0, "\u2581a": 1, "b": 2, "##c": 3, "\u2581.": 4, " !": 5}
    inner = Tokenizer(models.WordLevel(words, unk_token="b"))
    if decoder is not None:
        inner.decoder = getattr(decoders, decoder)()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>", clean_up_tokenization_spaces=tidy)
    chat = Chat(tokenizer)
    assert bool(len(chat.spelling.pieces)) == (decoder == "Fuse" and not tidy)
    for ids in product(range(len(words)), repeat=3):
        assert chat.text(torch.tensor(ids)) == tokenizer.decode(list(ids), skip_special_tokens=True)


@pytest.mark.parametrize(
    ("said", "more"), [([1, 7, 9], {1, 7, 9}), (7, {7}), ([True, "9", -2, None], set()), (None, set())]
)
def test_the_ends_of_generation_config_end_replies(
    small_model: Path, tmp_path: Path, said: Any, more: set[int]
) -> None:
    place = tmp_path / "model"
    shutil.copytree(small_model, place)
    (place / "generation_config.json").write_text(json.dumps({"eos_token_id": said}))
    chat = load_chat(place)
    assert set(chat.stops) == {int(chat.tokenizer.eos_token_id), int(chat.closing[-1])} | more
