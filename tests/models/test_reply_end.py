"""A reply that was cut before its end of turn: what follows writes the template's own end, as the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import make_model
from families import FAMILIES, tokenizer_of

from burnish.core.types import Task
from burnish.models.chat import Chat
from burnish.models.load import load_chat
from burnish.models.reply_end import following, unwritten_end, was_cut

ASKED = ({"role": "user", "content": "1 + 1?"},)
NEXT = {"role": "user", "content": "sure?"}


@pytest.fixture(params=list(FAMILIES))
def chat(request: pytest.FixtureRequest, tmp_path: Path) -> Chat:
    tokenizer_of(FAMILIES[request.param]).save_pretrained(tmp_path)
    return load_chat(tmp_path)


def whole_of(chat: Chat) -> list[int]:
    said = {"role": "assistant", "content": "the answer"}
    return list(chat._conversation([*ASKED, said, NEXT]).tolist())


@pytest.mark.parametrize("whole", [True, False])
def test_the_next_turn_stands_where_the_template_puts_it(chat: Chat, whole: bool) -> None:
    """Prompt, reply (cut or not) and what follows are the tokens of the whole conversation."""
    prompt, reply = chat.prompt(Task("question", ASKED, {}, "k")), chat.reply("the answer")
    said = reply if whole else reply[: len(reply) - len(chat.closing)]
    assert was_cut(chat, said) is not whole
    more = following(chat, said, NEXT["content"]).tolist()
    mine, there = [*prompt.tolist(), *said.tolist(), *more], whole_of(chat)
    assert there[len(there) - len(more) :] == more
    # Mistral's template writes a space before a reply, which a reply after its prompt has only once
    assert chat.tokenizer.decode(mine).split() == chat.tokenizer.decode(there).split()
    assert len(unwritten_end(chat, said)) == (0 if whole else len(chat.closing))


def test_an_end_of_several_tokens_is_written_from_where_it_was_cut(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(FAMILIES["chatml, eos apart"])
    tokenizer.chat_template = tokenizer.chat_template.replace("<|im_end|>", "\n.<|im_end|>")
    tokenizer.save_pretrained(tmp_path)
    chat = load_chat(tmp_path)
    closing = chat.closing.tolist()
    assert len(closing) >= 3
    said = chat.written("the answer")
    for written in range(len(closing)):
        cut = torch.cat([said, chat.closing[:written]])
        assert unwritten_end(chat, cut).tolist() == closing[written:]
    assert unwritten_end(chat, torch.zeros(0, dtype=torch.long)).tolist() == closing


def test_without_a_template_eos_ends_a_reply(tmp_path: Path) -> None:
    path = make_model(tmp_path)
    (path / "chat_template.jinja").unlink(missing_ok=True)
    chat = load_chat(path)
    tokenizer = chat.tokenizer
    tokenizer.chat_template = None
    chat = Chat(tokenizer)
    assert unwritten_end(chat, chat.written("12")).tolist() == [tokenizer.eos_token_id]
