"""Prompts and replies of many tasks, encoded in one call of the tokenizer.

A call for each text waits for the interpreter's lock (GIL) each time, which another thread holds while it launches a
GPU's kernels. What is encoded here goes to the chat's cache, where `Chat.prompt` and `Chat.reply` find
it; what needs more than an encoding (texts that spell control tokens) is left to them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from burnish.core.task import Task
from burnish.models.chat import Chat
from burnish.models.text_cache import text_key

FEWEST = 4  # texts that are worth it


def encode_together(chat: Chat, tasks: Sequence[Task], columns: Sequence[str]) -> None:
    """Encode the tasks' prompts and the replies in these columns, as far as the chat's cache does not have them."""
    cache = chat.texts
    if cache is None or cache.full or not chat.templated:
        return
    start = time.perf_counter()
    missing_texts: dict[bytes, tuple[str, bool]] = {}  # by key: the text, and whether it is a reply
    for task in tasks:
        key = text_key(*chat.prompt_identity(task))
        if key is not None and key not in missing_texts and not cache.has(key):
            text = chat.rendered(task)
            if text is not None:
                missing_texts[key] = text, False
        for reply in (str(task.given[one]) for one in columns if one in task.given and chat.pictures.draws is None):
            key = text_key("reply", reply)
            plain = not chat.start.header and not chat.control.in_text(reply)
            if key is not None and key not in missing_texts and not cache.has(key) and plain:
                missing_texts[key] = chat.lead + chat.start.text(reply), True
    if len(missing_texts) < FEWEST:
        return
    lead, *encoded = chat.numbers_of([chat.lead, *(text for text, _ in missing_texts.values())])
    seconds = (time.perf_counter() - start) / len(missing_texts)
    for (key, (_, is_reply)), ids in zip(missing_texts.items(), encoded, strict=True):
        if not is_reply:
            cache.put(key, chat.ids(ids), seconds)
        elif ids[: len(lead)] == lead:  # no token spans the two
            cache.put(key, torch.cat([chat.ids(ids[len(lead) :]), chat.closing]), seconds)
