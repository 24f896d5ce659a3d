"""The steps of a reply: where they end in its text, and the tokens that complete them.

A segmentation is named by text: lines, sentences, sub_sentences, paragraphs, whole; after:TEXT ends a step after each
TEXT; a number n ends one every n tokens. Steps cover the whole reply. The last one ends at the reply's last token, its
stop token included, so that a reply of one step is scored where an outcome reward model scores it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from burnish.core.types import Trace
from burnish.models.chat import Chat
from burnish.models.detokenizer import REPLACEMENT

AFTER = "after:"
_QUOTES = "[\"')\\]\u201d\u2019]*"
# A boundary of text is the end of a match. A sentence ends at its punctuation, not after the space behind it: in BPE
# that space belongs to the first token of the next sentence.
_BOUNDARIES = {
    "lines": r"\n",
    "sentences": rf"[.!?\u3002\uff01\uff1f]+{_QUOTES}(?=\s|$)|\n",
    "sub_sentences": rf"[.,;:!?\u3002\uff01\uff1f\uff0c\uff1b]+{_QUOTES}(?=\s|$)|\n",
    "paragraphs": r"\n[^\S\n]*\n",
    "whole": r"(?!)",
}
NAMES = tuple(_BOUNDARIES)

Segmentation = Callable[[Tensor, Chat], list[int]]


def segmentation(steps: str | int) -> Segmentation:
    """From the tokens of a reply [t] to the token that ends each step, in order; ValueError for an unknown name."""
    if isinstance(steps, int) or steps.isdigit():
        size = int(steps)
        if size < 1:
            raise ValueError(f"steps is {steps}; a step has at least 1 token")
        return lambda tokens, chat: [*range(size - 1, len(tokens) - 1, size), len(tokens) - 1]
    pattern = _pattern(steps)

    def by_text(tokens: Tensor, chat: Chat) -> list[int]:
        return token_ends(tokens, text_ends(chat.text(tokens), pattern), chat)

    return by_text


def text_ends(text: str, pattern: re.Pattern[str]) -> list[int]:
    """The offsets at which the steps of a text end, the last at its end.

    What is only space is no step: it belongs to the step before it, at the beginning to the first.
    """
    ends: list[int] = []
    start = 0
    for end in (*(match.end() for match in pattern.finditer(text)), len(text)):
        if text[start:end].strip():
            ends.append(end)
        elif ends:
            ends[-1] = end
        start = end
    return ends or [len(text)]


def split_text(text: str, steps: str) -> list[str]:
    """The steps of a text; joined they are the text."""
    ends = text_ends(text, _pattern(steps))
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def token_ends(tokens: Tensor, offsets: list[int], chat: Chat) -> list[int]:
    """The token that completes each offset of the text of these tokens; the last offset is completed by the last token.

    Steps that one token completes together are one step.
    """
    complete = _completed(tokens, chat)
    ends = [complete(offset) for offset in offsets[:-1]]
    return list(dict.fromkeys([*ends, len(tokens) - 1]))


def step_ends(trace: Trace, steps: Segmentation, chat: Chat, author: str = "policy") -> list[int]:
    """The positions in a trace at which the steps of the author's turns end."""
    found: list[int] = []
    for turn, start, _ in trace.spans():
        if turn.author == author and len(turn):
            found += [start + end for end in steps(turn.tokens, chat)]
    return found


def is_comment(line: str) -> bool:
    """Whether a line says nothing that runs: it is blank, a comment of Python, C or SQL, or a code fence."""
    text = line.strip()
    return not text or text.startswith(("#", "//", "/*", "*", "--", "```"))


def _pattern(steps: str) -> re.Pattern[str]:
    if steps.startswith(AFTER) and len(steps) > len(AFTER):
        return re.compile(re.escape(steps.removeprefix(AFTER).replace("\\n", "\n")))
    if steps not in _BOUNDARIES:
        raise ValueError(
            f"steps is {steps!r}; it is {', '.join(NAMES)}, {AFTER}TEXT (a step ends after TEXT) or a number of tokens"
        )
    return re.compile(_BOUNDARIES[steps])


def _completed(tokens: Tensor, chat: Chat) -> Callable[[int], int]:
    """A function from an offset of the text to the token that completes it."""
    lengths = _piece_lengths(tokens, chat)
    if lengths is not None:
        until = np.cumsum(lengths)
        return lambda offset: min(int(np.searchsorted(until, offset)), len(tokens) - 1)
    text, numbers = chat.text(tokens), tokens.numpy()

    def by_decoding(offset: int) -> int:
        wanted, last = text[:offset], len(tokens) - 1
        return bisect_left(range(last), True, key=lambda i: chat.spelling.text(numbers[: i + 1]).startswith(wanted))

    return by_decoding


def _piece_lengths(tokens: Tensor, chat: Chat) -> list[int] | None:
    """The characters of each token; None where a character is spread over tokens, or the text is not their sum."""
    pieces = chat.spelling.pieces
    if not len(pieces) or int(tokens.max()) >= len(pieces):
        return None
    own = pieces[tokens.numpy()].tolist()
    return None if any(REPLACEMENT in piece for piece in own) else [len(piece) for piece in own]


def at_positions(length: int, positions: list[int]) -> Tensor:
    """[length] bool: these positions."""
    mask = torch.zeros(length, dtype=torch.bool)
    mask[positions] = True
    return mask


def tokens_of(tokens: Tensor, chat: Chat, place: tuple[int, int]) -> tuple[int, int]:
    """The tokens [first, last) that write the characters [start, end) of a reply."""
    start, end = place

    def written(count: int) -> int:
        return len(chat.text(tokens[:count]))

    counts = range(len(tokens) + 1)
    first = bisect_right(counts, start, key=written) - 1
    last = bisect_left(counts, end, key=written)
    return max(0, first), max(first + 1, last)
