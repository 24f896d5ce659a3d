"""The special tokens that mark tool calls, spelled out in what a reply says to an environment."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from torch import Tensor

from burnish.core.tokenizer import Tokenizer

CALL_MARKS = ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "<|python_tag|>", "<tool_call>", "</tool_call>")


class CallMarks:
    """Those of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def marks(self) -> dict[int, str]:
        """Decoding leaves them out."""
        special = {self.tokenizer.decode([token]): token for token in self.tokenizer.all_special_ids}
        return {token: mark for mark, token in special.items() if mark in CALL_MARKS}

    def spelled(self, tokens: Tensor, read: Callable[[Tensor], str]) -> str:
        """The text of a reply, by `read`, with its marks."""
        text, since = "", 0
        for at, token in enumerate(tokens.tolist() if self.marks else ()):
            if token in self.marks:
                text += read(tokens[since:at]) + self.marks[token]
                since = at + 1
        return text + read(tokens[since:])
