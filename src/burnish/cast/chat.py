"""Between text and tokens, in one direction at a time: what a task says becomes tokens once; what the policy wrote
is decoded for reading and never tokenised again."""

from __future__ import annotations

import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from burnish.cast.spelling import Spelling
from burnish.nouns import Message, Task

_MARK = "\u2042REPLY\u2042"  # stands for a reply that is never tokenised


class Chat:
    """A tokenizer and its chat template."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.templated = bool(getattr(tokenizer, "chat_template", None))
        self.spelling = Spelling(tokenizer)

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The tokenizer as the files that a model directory holds. It never changes, and writing it down takes a while."""
        with tempfile.TemporaryDirectory(prefix="burnish-tokenizer-") as folder:
            self.tokenizer.save_pretrained(folder)
            return {file.name: file.read_bytes() for file in sorted(Path(folder).iterdir())}

    @cached_property
    def stops(self) -> tuple[int, ...]:
        """The token ids that end a reply: eos, and the token with which the template closes an assistant's message."""
        ids = [self.tokenizer.eos_token_id]
        if self.templated:
            closing = self._after_reply("")[0]
            first = self.tokenizer.encode(closing, add_special_tokens=False)[:1]
            ids += [i for i in first if i in self.tokenizer.all_special_ids]
        return tuple(dict.fromkeys(i for i in ids if i is not None))

    def prompt(self, task: Task) -> Tensor:
        """A task's prompt, up to where the reply begins."""
        if isinstance(task.prompt, str) and not self.templated:
            return self._encode(task.prompt, special=True)
        messages = [{"role": "user", "content": task.prompt}] if isinstance(task.prompt, str) else list(task.prompt)
        if not self.templated:
            return self._encode("\n".join(m["content"] for m in messages) + "\n", special=True)
        return self._encode(self._render(messages, generation=True))

    def reply(self, text: str) -> Tensor:
        """A demonstration's reply, closed by the stop token."""
        return torch.cat([self._encode(text), torch.tensor([self.stops[0]])])

    def observation(self, text: str) -> Tensor:
        """What the environment says after a reply, up to where the next reply begins.

        The reply before it ended with its stop token, so this starts with whatever the template puts after that token.
        """
        if not self.templated:
            return self._encode(f"\n{text}\n")
        closing, rest = self._after_reply(text)
        stop = self.tokenizer.decode([self.stops[-1]], skip_special_tokens=False)
        return self._encode(closing.removeprefix(stop) + rest)

    def text(self, tokens: Tensor) -> str:
        """What a reply says, without its stop token."""
        return self.spelling.text(tokens.numpy())

    def _after_reply(self, text: str) -> tuple[str, str]:
        """What the template puts after a reply: the closing of that message, then the next user message with `text`."""
        asked: list[Message] = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _MARK}]
        closed = self._render(asked, generation=False).split(_MARK)[1]
        whole = self._render([*asked, {"role": "user", "content": text}], generation=True).split(_MARK)[1]
        return closed, whole.removeprefix(closed)

    def _render(self, messages: list[Any], generation: bool) -> str:
        return self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generation)

    def _encode(self, text: str, special: bool = False) -> Tensor:
        return torch.tensor(self.tokenizer.encode(text, add_special_tokens=special), dtype=torch.long)
