"""The parts of a reply as a client gets them, and what is new in them while the reply is being written."""

from __future__ import annotations

from collections.abc import Iterator

from burnish.serve.asked import Answered, Asked, Piece
from burnish.tool_calls import ReadReply
from burnish.tool_calls.bare import read_bare
from burnish.tool_calls.thoughts import THINK


def parts_of(answered: Answered | Piece, asked: Asked) -> ReadReply:
    """Thoughts, text and calls of a reply as the client gets them: calls where tools were offered, thoughts where the
    model's format has them.
    """
    reader = answered.reader
    if not asked.tools and not reader.thinks:
        return ReadReply(answered.text)
    parts = reader.read(answered.text)
    calls = [call for call in parts.calls if not call.problem] if asked.tools and asked.tool_choice != "none" else []
    if asked.tools and asked.tool_choice not in ("auto", "none") and not calls:
        calls = [call for call in read_bare(answered.text).calls if not call.problem]  # as it was held to
    if calls:
        content = parts.content.strip() if parts.calls else ""
        kept = calls[:1] if asked.one_call or asked.tool_choice not in ("auto", "required") else calls
        return ReadReply(content, tuple(kept), parts.reasoning if reader.thinks else "")
    if not reader.thinks:
        return ReadReply(answered.text)
    content = parts.content if not parts.calls else reader.answer(answered.text)
    return ReadReply(content.strip(), (), parts.reasoning)


class Deltas:
    """What is new in a reply since the client was last sent a part of it."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self._sent = {"reasoning_content": "", "content": ""}

    def of(self, item: Piece | Answered) -> Iterator[tuple[str, str]]:
        """Pairs of a key of a message and the text that is new there."""
        parts = parts_of(item, self.asked) if isinstance(item, Answered) else self._safe(item)
        for key, text in (("reasoning_content", parts.reasoning), ("content", parts.content)):
            sent = self._sent[key]
            if len(text) > len(sent) and text.startswith(sent):
                self._sent[key] = text
                yield key, text[len(sent) :]

    def _safe(self, piece: Piece) -> ReadReply:
        """The parts that no later token can change: not the beginning of a mark, nor what may become a call."""
        asked, reader = self.asked, piece.reader
        text = piece.text.rstrip("\ufffd")
        reads = bool(asked.tools) or reader.thinks
        marks = [*asked.stop]
        if reads:
            marks += [*reader.format.marks, *(reader.format.thoughts or ()), *THINK]
        text = text[: len(text) - _overlap(text, marks)]
        if not reads:
            return ReadReply(text)
        if any(mark in text for mark in reader.format.marks) and asked.tools:
            before = min(text.find(mark) for mark in reader.format.marks if mark in text)
            text = text[:before] if reader.format.thoughts is not None else text
        parts = parts_of(Piece(text, reader), self.asked)
        if asked.tools and (parts.content.lstrip()[:1] in ("{", "[") or asked.tool_choice not in ("auto", "none")):
            return ReadReply("", (), parts.reasoning.rstrip())
        return ReadReply(parts.content.rstrip(), (), parts.reasoning.rstrip())


def _overlap(text: str, marks: list[str]) -> int:
    """How many of the last characters may be the beginning of a mark."""
    longest = max(map(len, marks), default=0)
    for size in range(min(longest - 1, len(text)), 0, -1):
        if any(len(mark) > size and text.endswith(mark[:size]) for mark in marks):
            return size
    return 0
