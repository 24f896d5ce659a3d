"""Between text and tokens: a conversation rendered turn by turn is the conversation rendered at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from burnish.cast.load import load_chat
from burnish.nouns import Task


@pytest.fixture(params=["small", "tiny"])
def chat(request: pytest.FixtureRequest, small_model: Path):
    from burnish.cast.models import resolve

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
