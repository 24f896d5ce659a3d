"""The special tokens that mark tool calls, spelled out in what a reply says to an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from burnish.core.tokenizer import Tokenizer
from burnish.tool_calls.table import MARKS, Reader
from burnish.tool_calls.thoughts import THINK


def call_marks(tokenizer: Tokenizer, reader: Reader) -> dict[int, str]:
    """The special tokens that mark tool calls and thoughts: decoding leaves them out."""
    special = {tokenizer.decode([token]): token for token in tokenizer.all_special_ids}
    marks = MARKS.union(reader.format.marks, reader.format.thoughts or (), THINK)
    return {token: mark for mark, token in special.items() if mark in marks}


def spelled(tokens: Tensor, read: Callable[[Tensor], str], marks: Mapping[int, str]) -> str:
    """The text of a reply, by `read`, with its marks, which decoding leaves out."""
    text, since = "", 0
    for at, token in enumerate(tokens.tolist() if marks else ()):
        if token in marks:
            text += read(tokens[since:at]) + marks[token]
            since = at + 1
    return text + read(tokens[since:])
