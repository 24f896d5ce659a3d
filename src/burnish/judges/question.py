"""A question to a judge: a template with the texts that are judged, each inside a fence that it cannot close."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from string import Template as Substituted

_CONTROL = re.compile(  # how chat templates of known models write their control tokens
    r"<\||\|>|</?s>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|</?(?:bos|eos|pad|think|tool_call|tool_response)>",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Template:
    """The words of a question. `text` has $placeholders for trusted words, and $data where the judged texts stand.

    digits  hexadecimal digits of a fence
    version changes whenever the words change: cached answers to other words are not reused
    """

    name: str
    version: int
    text: str
    digits: int = 12

    @property
    def id(self) -> str:
        """Name and version, as in a cache key."""
        return f"{self.name}/{self.version}"


@dataclass(frozen=True)
class Question:
    """What a judge is asked: one user message.

    number  tells questions with the same words apart, for other answers
    texts   what it shows, as it was given: the request first
    """

    template: str
    text: str
    number: int = 0
    texts: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @property
    def key(self) -> str:
        """The hash of all that an answer depends on besides the judge."""
        return hashlib.sha256(f"{self.template}\x1f{self.number}\x1f{self.text}".encode()).hexdigest()


def question(template: Template, data: Sequence[tuple[str, str]], **words: str) -> Question:
    """The template with its words and with (label, text) blocks, each text between two lines with a fence:

        [reply begin 3f9a17c2]
        ...
        [reply end 3f9a17c2]

    The fence is a hash of all texts that occurs in none of them. So a text cannot contain the line that ends it: it
    would have to contain a hash of itself, and then another fence would be taken. The same texts give the same
    question, so answers can be cached and a resumed run asks the same.
    """
    texts = [neutral(text) for _, text in data]
    code = fence(texts, template.digits)
    blocks = [
        f"[{label} begin {code}]\n{text}\n[{label} end {code}]" for (label, _), text in zip(data, texts, strict=True)
    ]
    filled = Substituted(template.text).substitute({**words, "data": "\n".join(blocks), "fence": code})
    return Question(template.id, filled, texts=tuple(text for _, text in data))


def fence(texts: Sequence[str], digits: int) -> str:
    """A code of hexadecimal digits, derived from the texts, that is in none of them."""
    whole = "\x1f".join(texts)
    attempt = 0
    while True:
        code = hashlib.sha256(f"{attempt}\x1f{whole}".encode()).hexdigest()[: digits + attempt // 64]
        if code not in whole.lower():
            return code
        attempt += 1  # after 64 attempts the code gets longer: a text cannot hold all of them


def neutral(text: str) -> str:
    """The text with control tokens of chat templates taken apart: a server might read them as the ends of messages."""
    return _CONTROL.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
