"""Texts of a batch, encoded in one call: the tokens that they have one by one."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from burnish.core.types import Task
from burnish.models.chat import Chat
from burnish.models.encode_batch import encode_together
from burnish.models.known_models import TINY
from burnish.models.load import load_chat
from burnish.models.text_cache import TextCache


class Counted:
    """A tokenizer that counts its calls."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.one, self.many = inner, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def encode(self, *given: Any, **more: Any) -> list[int]:
        self.one += 1
        return self.inner.encode(*given, **more)

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        self.many += 1
        return self.inner.encode_many(texts)


@pytest.fixture(params=["small", "tiny"])
def chat(request: pytest.FixtureRequest, small_model: Path) -> Chat:
    found = copy.copy(load_chat(small_model if request.param == "small" else TINY))
    found.texts = TextCache()
    return found


def tasks_of(chat: Chat) -> list[Task]:
    stop = chat.tokenizer.decode([chat.stops[0]])
    long = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "3"},
    ]
    rows = [(f"what is {k} + 1?", f"it is {k + 1}", f" no, {k}") for k in range(6)]
    rows += [("what?", f"it {stop} ends", ""), (f"say {stop}", "it is 1", "caf\u00e9 \u4f60")]
    asked = [Task("pair", prompt, {"chosen": a, "rejected": b}, str(i)) for i, (prompt, a, b) in enumerate(rows)]
    return [*asked, Task("pair", tuple(long), {"chosen": "it is 1"}, "long")]


def test_batches_have_the_tokens_of_single_texts(chat: Chat) -> None:
    tasks = tasks_of(chat)
    alone = copy.copy(chat)
    alone.texts = None
    encode_together(chat, tasks, ["chosen", "rejected"])
    assert chat.texts is not None
    encoded = chat.texts.encoded
    assert encoded >= 6 * 3
    for task in tasks:
        assert chat.prompt(task).tolist() == alone.prompt(task).tolist()
        for reply in task.given.values():
            assert chat.reply(reply).tolist() == alone.reply(reply).tolist()
    assert chat.texts.encoded - encoded <= 2, "texts that spell a control token are left"


def test_one_call_for_all_and_none_for_what_is_known() -> None:
    chat = copy.copy(load_chat(TINY))
    chat.texts = TextCache()
    counted = chat.tokenizer = Counted(chat.tokenizer)  # type: ignore[assignment]
    tasks = [Task("demo", f"what is {k} + 1?", {"demo": f"it is {k}"}, str(k)) for k in range(8)]
    chat.prompt(tasks[0]), chat.reply("it is 0")  # what is computed once for all texts is there now
    before = counted.one
    for _ in range(2):
        encode_together(chat, tasks, ["demo"])
        for task in tasks:
            chat.prompt(task), chat.reply(task.given["demo"])
    assert (counted.one - before, counted.many) == (0, 1)
    encode_together(chat, [Task("demo", "what is 9 + 1?", {"demo": "it is 9"}, "9")], ["demo"])
    assert counted.many == 1, "two texts are not worth a call"


def test_the_time_counts_towards_the_file_and_a_full_cache_is_left_alone(chat: Chat) -> None:
    assert chat.texts is not None
    encode_together(chat, tasks_of(chat), ["chosen", "rejected"])
    assert chat.texts._seconds > 0, "or texts that took long to encode would not be written to disk"
    chat.texts = TextCache()
    chat.texts._full = True
    encode_together(chat, tasks_of(chat), ["chosen", "rejected"])
    assert chat.texts.encoded == 0, "what cannot be kept would be encoded twice"


def test_batches_open_thoughts_once_too() -> None:
    template = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}"
    chat = Chat(copy.deepcopy(load_chat(TINY).tokenizer))
    chat.tokenizer.use_template(template + "{% if add_generation_prompt %}{{ '<|assistant|><think>\n' }}{% endif %}")
    chat.texts = TextCache()
    tasks = [Task("demo", f"what is {k}?", {"demo": f"<think>hm</think>{k}"}, str(k)) for k in range(8)]
    encode_together(chat, tasks, ["demo"])
    assert chat.texts.encoded == 16
    assert chat.text(chat.reply("<think>hm</think>3")) == "hm</think>3"
    assert chat.texts.encoded == 16
