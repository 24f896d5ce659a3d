"""Control tokens: only the chat template writes them. In what users, datasets and environments bring, their spelling
is plain text.

A tokenizer finds its special tokens anywhere in a text. So a text in which one is spelled is encoded by a twin of the
tokenizer, in which every control token has another, random name; the template's own control tokens are given these
names first. The twin is otherwise the same: where no control token is spelled, it encodes as the tokenizer does.

A template may write two fields of a message side by side. A text that ends as a control token begins gets a seam there,
so that the next field cannot complete the token; the twin reads both as plain text.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from burnish.core.tokenizer import Tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


def backend(tokenizer: Tokenizer) -> Backend | None:
    """The tokenizers library's own object behind a tokenizer; None where there is none."""
    inner: Backend | None = getattr(tokenizer, "inner", None) or getattr(tokenizer, "backend_tokenizer", None)
    return inner


class Control:
    """The control tokens of a tokenizer: its special tokens, and those added tokens that its chat template puts
    around turns.

    skeleton: a conversation as the template renders it
    """

    def __init__(self, tokenizer: Tokenizer, skeleton: str) -> None:
        self.tokenizer, self.inner = tokenizer, backend(tokenizer)
        special = set(tokenizer.all_special_ids)
        plain: Any = tokenizer
        added = plain.added_tokens_decoder if self.inner is None else self.inner.get_added_tokens_decoder()
        self.ids = {
            token.content: number
            for number, token in added.items()
            if token.content
            and (token.special or number in special or (token.content in skeleton and not token.content.isspace()))
        }
        self.spelled = re.compile("|".join(map(re.escape, sorted(self.ids, key=len, reverse=True))) or "(?!)")
        secret = secrets.token_hex(16)  # no text can name what it does not know
        self.names = {token: f"name{secret}n{number}e" for token, number in self.ids.items()}
        self.tokens = list(self.ids)
        self.secret, self.mark = secret, re.compile(f"mark{secret}n([0-9]+)e")
        self.seam = f"mark{secret}s"  # stands for nothing
        self.beginnings = {token[:size] for token in self.ids for size in range(1, len(token))}
        self.longest = max(map(len, self.ids), default=0)
        normalizer = None if self.inner is None else self.inner.normalizer
        self.normalizer = normalizer if any(token.normalized for token in added.values()) else None

    def in_text(self, text: str) -> bool:
        """Whether the tokenizer would find a control token in a text."""
        if self.spelled.search(text):
            return True
        return self.normalizer is not None and bool(self.spelled.search(self.normalizer.normalize_str(text)))

    def begun(self, text: str) -> bool:
        """Whether a text ends as a control token begins, perhaps with blanks after it, which templates strip."""
        if self.inner is None:
            return False
        end = text.rstrip()[-self.longest :]
        return any(end[at:] in self.beginnings for at in range(len(end)))

    def inside(self, value: object) -> bool:
        """Whether one is spelled, or begins at the end, in a text, or in any text of lists and mappings."""
        if isinstance(value, str):
            return self.in_text(value) or self.begun(value)
        if isinstance(value, Mapping):
            return any(map(self.inside, (*value, *value.values())))
        return isinstance(value, list | tuple) and any(map(self.inside, value))

    def marked_messages(self, messages: Iterable[Mapping[str, object]]) -> list[dict[str, object]]:
        """Messages with marks in all texts; roles, which are words, and the messages' own keys stay."""
        return [{key: one if key == "role" else self.marked(one) for key, one in m.items()} for m in messages]

    def marked(self, value: object) -> object:
        """The same value with marks in place of the control tokens that are spelled in its texts and keys, and seams
        where one begins at the end.
        """
        if isinstance(value, str):
            if self.begun(value):
                end = len(value.rstrip())
                value = value[:end] + self.seam + value[end:]
            return self.spelled.sub(lambda match: f"mark{self.secret}n{self.tokens.index(match[0])}e", value)
        if isinstance(value, Mapping):
            return {self.marked(key): self.marked(one) for key, one in value.items()}
        return [self.marked(one) for one in value] if isinstance(value, list | tuple) else value

    def encode_marked(self, rendered: str) -> list[int]:
        """Text in which marks stand for spelled control tokens, and all that are spelled are the template's."""
        self._check(self.tokens[int(n)] for n in set(self.mark.findall(rendered)))
        named = self.spelled.sub(lambda match: self.names[match[0]], rendered).replace(self.seam, "")
        written = len(self.spelled.findall(rendered))
        if self.secret in self.mark.sub("", self.spelled.sub("", rendered.replace(self.seam, ""))).lower():
            raise ValueError(
                "a message spells a control token, and the chat template changes the text of messages, so that it "
                "cannot be kept "
                "as plain text; remove it from the message"
            )
        ids = self._encode(self.mark.sub(lambda match: self.tokens[int(match[1])], named))
        if sum(number in self._numbers for number in ids) != written:
            raise ValueError("a message spells a control token that its tokenizer cannot encode as text; remove it")
        return ids

    def encode_text(self, text: str, special: bool = False) -> list[int]:
        """A text without any control token. special: with what the tokenizer puts around every text."""
        self._check(set(self.spelled.findall(text)))
        return self._encode(text, special)

    def _encode(self, text: str, special: bool = False) -> list[int]:
        ids: list[int] = self._twin.encode(text, add_special_tokens=special).ids
        return ids

    def _check(self, spelled: Iterable[str]) -> None:
        """Refuse spellings that the tokenizer has no plain tokens for."""
        for token in sorted(spelled):
            if token not in self._plain:
                raise ValueError(
                    f"a text contains {token!r}, a control token of the model, and its tokenizer cannot encode that "
                    "as plain text; "
                    "remove it from the text"
                )

    @cached_property
    def _numbers(self) -> frozenset[int]:
        return frozenset(self.ids.values())

    @cached_property
    def _plain(self) -> frozenset[str]:
        """The control tokens whose spelling the twin encodes as plain text, and decodes again."""
        if self.inner is None:
            return frozenset()

        def bare(text: str) -> str:
            return "".join(text.split()).casefold()

        tokens = []
        for token in self.ids:
            ids = self._encode(token)
            if ids and not self._numbers & set(ids) and bare(self._twin.decode(ids)) == bare(token):
                tokens.append(token)
        return frozenset(tokens)

    @cached_property
    def _twin(self) -> Backend:
        """The tokenizer with its control tokens under their secret names."""
        assert self.inner is not None, "a tokenizer without a twin"
        told = json.loads(self.inner.to_str())
        names, model = self.names, told["model"]
        for token in told["added_tokens"]:
            token["content"] = names.get(token["content"], token["content"])
        vocabulary = model.get("vocab")
        if isinstance(vocabulary, dict):
            model["vocab"] = {names.get(piece, piece): number for piece, number in vocabulary.items()}
        elif isinstance(vocabulary, list):
            model["vocab"] = [[names.get(piece, piece), score] for piece, score in vocabulary]
        if model.get("unk_token") in names:
            model["unk_token"] = names[model["unk_token"]]
        if model.get("merges"):
            pairs = [
                tuple(merge.split(" ", 1)) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]
            ]
            model["merges"] = [list(pair) for pair in pairs if not {*pair, "".join(pair)} & names.keys()]
        twin = type(self.inner).from_str(json.dumps(told))
        twin.no_truncation()
        twin.no_padding()
        moved = [token for token, number in self.ids.items() if twin.token_to_id(names[token]) != number]
        if moved:
            raise ValueError(
                f"the tokenizer cannot encode {moved[0]!r} as plain text, because its ids are not those of its file; "
                "remove it from the text, or write the tokenizer again with save_pretrained"
            )
        return twin
