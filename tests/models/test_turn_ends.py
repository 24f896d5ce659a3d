"""Chats whose turns end otherwise than with eos, and tokenizers that add a BOS by themselves: through a saved
directory.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import make_model
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from burnish.core.types import Task
from burnish.models.chat import Chat
from burnish.models.load import load_chat

TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|turn|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="module", params=["templated"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """eos is <|end|>, a turn ends with <|turn|>, and every plain text is begun with <|bos|>."""
    path = make_model(tmp_path_factory.mktemp("turns"))
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.add_special_tokens(
        {"bos_token": "<|bos|>", "additional_special_tokens": ["<|user|>", "<|assistant|>", "<|turn|>"]}
    )
    bos = tokenizer.convert_tokens_to_ids("<|bos|>")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", bos)]
    )
    tokenizer.chat_template = TEMPLATE if request.param == "templated" else None
    (path / "chat_template.jinja").unlink(missing_ok=True)
    tokenizer.save_pretrained(path)
    return path


def ids(folder: Path, *tokens: str) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [tokenizer.convert_tokens_to_ids(token) for token in tokens]


@pytest.fixture
def chat(folder: Path) -> Chat:
    return load_chat(folder)


def test_a_reply_may_end_with_eos_or_with_the_turns_end(chat: Chat, folder: Path) -> None:
    eos, turn = ids(folder, "<|end|>", "<|turn|>")
    assert set(chat.stops) == ({eos, turn} if chat.templated else {eos})


def test_a_demonstration_is_closed_once_by_a_token_that_ends_replies(chat: Chat) -> None:
    reply = chat.reply("hello").tolist()
    assert reply[-1] in chat.stops and not set(reply[:-1]) & set(chat.stops)
    assert chat.text(chat.reply("hello")) == "hello"


def test_there_is_one_bos_and_it_comes_first(chat: Chat, folder: Path) -> None:
    (bos,) = ids(folder, "<|bos|>")
    prompt = chat.prompt(Task("question", "hi", {}, "hi")).tolist()
    assert prompt[0] == bos and prompt.count(bos) == 1
    assert bos not in chat.reply("hello").tolist()
    assert bos not in chat.observation("and now?").tolist()


def test_what_follows_a_reply_begins_after_its_end(chat: Chat, folder: Path) -> None:
    """The token that ended the reply stands in the reply; the next message follows."""
    observed = chat.observation("more").tolist()
    user, assistant = ids(folder, "<|user|>", "<|assistant|>")
    assert not set(observed[:1]) & set(chat.stops)
    if chat.templated:
        assert observed[0] == user and observed[-1] == assistant and observed.count(user) == 1
