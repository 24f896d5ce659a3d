"""What burnish asks of every tokenizer: one of transformers, or burnish's own over a tokenizer.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Tokenizer(Protocol):
    """Text to tokens and back, and which tokens are special. What only some have is asked for with getattr."""

    @property
    def chat_template(self) -> str | Mapping[str, str] | None: ...

    @property
    def all_special_ids(self) -> Sequence[int]: ...

    @property
    def eos_token_id(self) -> int | None: ...

    @property
    def pad_token_id(self) -> int | None: ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...

    def decode(
        self,
        ids: Sequence[int],
        /,
        *,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> str: ...

    def save_pretrained(self, folder: str | Path) -> object: ...
