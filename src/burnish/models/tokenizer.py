"""A tokenizer.json read by the tokenizers library itself, with as much around it as burnish asks for.

Only for directories in which nothing but tokenizer.json says what tokens are: transformers' own classes for some models
read other files as well, and go their own way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from burnish.models.template import Template
from burnish.util.files import read_json

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # texts are encoded one by one: its threads would only wait
GENERIC = ("TokenizersBackend", "PreTrainedTokenizerFast")  # transformers' classes that take tokenizer.json as it is
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FURTHER = ("extra_special_tokens", "additional_special_tokens")
UNKNOWN = ("added_tokens_decoder", "auto_map", "add_bos_token", "add_eos_token", "clean_up_tokenization_spaces")
FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json")


def tokenizer_of(path: Path) -> Tokens | None:
    """The tokenizer of a directory; None where transformers may read more out of it than its tokenizer.json says."""
    told, whole = read_json(path / "tokenizer_config.json"), read_json(path / "tokenizer.json")
    if told is None or whole is None or told.get("tokenizer_class") not in GENERIC or any(map(told.get, UNKNOWN)):
        return None
    named = {name: told[name] for name in NAMED if told.get(name) is not None}
    further = [token for name in FURTHER for token in told.get(name) or ()]
    special = {token["content"]: token["id"] for token in whole.get("added_tokens", ()) if token.get("special")}
    if not all(isinstance(token, str) and token in special for token in [*named.values(), *further]):
        return None
    file = path / "chat_template.jinja"
    template = file.read_text() if file.is_file() else told.get("chat_template")
    if not isinstance(template, str | None):
        return None
    return Tokens(path, named, [special[token] for token in [*named.values(), *further]], special, template)


class Tokens:
    """A tokenizer with its special tokens and its chat template. named: "eos_token" and the like, and their texts."""

    def __init__(
        self,
        path: Path,
        named: Mapping[str, str],
        special_ids: Iterable[int],
        ids: Mapping[str, int],
        template: str | None,
    ) -> None:
        from tokenizers import Tokenizer

        self.inner = Tokenizer.from_file(str(path / "tokenizer.json"))
        self.inner.no_truncation()
        self.inner.no_padding()
        self.named, self.chat_template = dict(named), template
        self.all_special_ids = list(dict.fromkeys(special_ids))
        self.eos_token_id = ids.get(self.named.get("eos_token", ""))
        self.pad_token_id = ids.get(self.named.get("pad_token", ""))
        self.mask_token_id = ids.get(self.named.get("mask_token", ""))
        self.files = {name: (path / name).read_bytes() for name in FILES if (path / name).is_file()}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text. A batch of one text is encoded outside of Python's lock, so that threads can encode."""
        ids: list[int] = self.inner.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
        return ids

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        """The ids of texts, without special tokens around them."""
        return [encoding.ids for encoding in self.inner.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False, **_: object) -> str:
        text: str = self.inner.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def apply_chat_template(
        self, messages: list[dict[str, object]], *, tokenize: bool, add_generation_prompt: bool = False
    ) -> str:
        """The messages as the template puts them, in text."""
        assert not tokenize, "text is asked for"
        return Template(self.chat_template or "", self.named).render(messages, add_generation_prompt)

    def use_template(self, template: str | None) -> None:
        """Take another chat template, in its files too."""
        self.chat_template = template
        told = json.loads(self.files["tokenizer_config.json"])
        if told.pop("chat_template", None) is not None:
            self.files["tokenizer_config.json"] = json.dumps(told, indent=2, ensure_ascii=False).encode()
        self.files.pop("chat_template.jinja", None)
        if template is not None:
            self.files["chat_template.jinja"] = template.encode()

    def use_padding(self, token: str) -> None:
        """Take another padding token, in its files too."""
        self.named["pad_token"], self.pad_token_id = token, self.inner.token_to_id(token)
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            if name in self.files:
                told = {**json.loads(self.files[name]), "pad_token": token}
                self.files[name] = json.dumps(told, indent=2, ensure_ascii=False).encode()

    def save_pretrained(self, folder: str | Path) -> None:
        """The files from which it was read."""
        for name, content in self.files.items():
            (Path(folder) / name).write_bytes(content)

    def __deepcopy__(self, memo: dict[int, object]) -> Tokens:
        twin = object.__new__(Tokens)
        copied = {name: value for name, value in vars(self).items() if name != "inner"}
        twin.__dict__.update(copied, inner=type(self.inner).from_str(self.inner.to_str()))
        return twin


def listed_ends(path: Path) -> tuple[int, ...]:
    """The token ids that end a reply, as generation_config.json lists them: Llama 3 has three, Qwen two."""
    stored = (read_json(path / "generation_config.json") or {}).get("eos_token_id")
    listed = stored if isinstance(stored, list) else [stored]
    return tuple(number for number in listed if type(number) is int and number >= 0)
