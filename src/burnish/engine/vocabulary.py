"""What an engine needs of a tokenizer with a chat template (models/chat.py is one)."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from burnish.core.types import Task


class Vocabulary(Protocol):
    """Which tokens end a reply, and the text of a reply."""

    @property
    def stops(self) -> tuple[int, ...]: ...

    def text(self, tokens: Tensor) -> str: ...


class Prompter(Vocabulary, Protocol):
    """Also writes prompts and replies as tokens, for the probe of an engine in another process."""

    def prompt(self, task: Task) -> Tensor: ...

    def reply(self, text: str) -> Tensor: ...
