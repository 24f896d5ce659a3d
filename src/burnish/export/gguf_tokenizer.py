"""A tokenizer.json as the tokenizer of a GGUF file.

llama.cpp does not read a tokenizer's regular expressions: it has a list of pre-tokenizers by name, and a file says
which one it has. So a tokenizer is written only where its pre-tokenizer is one of the list; any other would split text
in another way without a word.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.util.files import read_json

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5  # the types of tokens in a GGUF file
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PRE = {  # what splits a text before BPE -> llama.cpp's name for it
    "gpt2": "gpt-2",
    "digits gpt2": "smollm",
    _WORDS + r"\p{N}{1,3}" + _REST: "llama-bpe",
    _WORDS + r"\p{N}" + _REST: "qwen2",
}


@dataclass(frozen=True)
class Vocabulary:
    """The fields tokenizer.ggml.* of a GGUF file."""

    pre: str
    tokens: list[str]
    kinds: list[int]
    merges: list[str]
    ends: int
    begins: int
    adds_begin: bool
    pads: int | None
    template: str | None


def vocabulary_of(folder: Path, rows: int) -> Vocabulary:
    """The vocabulary of a model directory. rows: of the embedding table, which may be longer than the vocabulary."""
    whole = read_json(folder / "tokenizer.json")
    if whole is None:
        raise ValueError(
            f"{folder} has no tokenizer.json, from which the vocabulary of a GGUF file is written; save the tokenizer "
            "with a fast tokenizer class of transformers"
        )
    told = read_json(folder / "tokenizer_config.json") or {}
    pre = _pre_tokenizer(whole, folder)
    ids: dict[str, int] = whole["model"]["vocab"]
    tokens, kinds = [f"[PAD{i}]" for i in range(rows)], [UNUSED] * rows
    for text, number in ids.items():
        tokens[number], kinds[number] = text, NORMAL
    for token in whole.get("added_tokens", ()):
        if token["id"] >= rows:
            raise ValueError(f"token {token['content']!r} has no row in the model's embeddings; resize them first")
        tokens[token["id"]] = token["content"]
        kinds[token["id"]] = CONTROL if token.get("special") else USER_DEFINED
    numbers = {text: i for i, text in enumerate(tokens)}
    ends = _named(told, "eos_token", numbers)
    if ends is None:
        raise ValueError(f"the tokenizer in {folder} has no eos token, so no reply would ever end; name one")
    begins = _named(told, "bos_token", numbers)
    return Vocabulary(
        pre=pre,
        tokens=tokens,
        kinds=kinds,
        merges=[one if isinstance(one, str) else " ".join(one) for one in whole["model"]["merges"]],
        ends=ends,
        begins=ends if begins is None else begins,  # a file must name one; without adds_begin it is never written
        adds_begin=begins is not None and _encoded_empty(folder)[:1] == [begins],
        pads=_named(told, "pad_token", numbers),
        template=_template(folder, told),
    )


def add_to(writer: Any, vocabulary: Vocabulary) -> None:
    """Write the fields of the vocabulary. writer: a gguf.GGUFWriter"""
    writer.add_tokenizer_model("gpt2")  # llama.cpp's word for byte-level BPE
    writer.add_tokenizer_pre(vocabulary.pre)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.kinds)
    writer.add_token_merges(vocabulary.merges)
    writer.add_eos_token_id(vocabulary.ends)
    writer.add_bos_token_id(vocabulary.begins)
    writer.add_add_bos_token(vocabulary.adds_begin)
    writer.add_add_eos_token(False)
    if vocabulary.pads is not None:
        writer.add_pad_token_id(vocabulary.pads)
    if vocabulary.template is not None:
        writer.add_chat_template(vocabulary.template)


def _pre_tokenizer(whole: dict[str, Any], folder: Path) -> str:
    """llama.cpp's name for a tokenizer's pre-tokenizer; ValueError where it has none."""
    model = whole.get("model") or {}
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        raise ValueError(
            f"the tokenizer in {folder} is not byte-level BPE (as those of Llama 3, Qwen and SmolLM are), and burnish "
            "writes no other into a GGUF file; convert the directory with llama.cpp's convert_hf_to_gguf.py"
        )
    split = _shape(whole.get("pre_tokenizer") or {})
    normal = (whole.get("normalizer") or {}).get("type")
    if split not in PRE or normal not in (None, "NFC") or (normal == "NFC") != (PRE.get(split) == "qwen2"):
        raise ValueError(
            f"llama.cpp has no name for the pre-tokenizer of {folder} that burnish knows ({split[:80]!r}); convert the "
            "directory with llama.cpp's convert_hf_to_gguf.py"
        )
    return PRE[split]


def _shape(part: dict[str, Any]) -> str:
    """A pre-tokenizer in a few words, as the keys of PRE."""
    kind = part.get("type")
    if kind == "Sequence":
        return " ".join(filter(None, map(_shape, part.get("pretokenizers") or ())))
    if kind == "ByteLevel" and not part.get("add_prefix_space"):
        return "gpt2" if part.get("use_regex", True) else ""
    if kind == "Digits" and part.get("individual_digits"):
        return "digits"
    if kind == "Split" and part.get("behavior") == "Isolated" and not part.get("invert"):
        return str((part.get("pattern") or {}).get("Regex"))
    return json.dumps(part)


def _named(told: dict[str, Any], name: str, numbers: dict[str, int]) -> int | None:
    value = told.get(name)
    text = value.get("content") if isinstance(value, dict) else value
    return numbers.get(text) if isinstance(text, str) else None


def _encoded_empty(folder: Path) -> list[int]:
    """The tokens that the tokenizer itself puts around an empty text."""
    from tokenizers import Tokenizer

    return list(Tokenizer.from_file(str(folder / "tokenizer.json")).encode("").ids)


def _template(folder: Path, told: dict[str, Any]) -> str | None:
    """The chat template without the marks {% generation %} of training, which llama.cpp's readers do not know."""
    file = folder / "chat_template.jinja"
    text = file.read_text(encoding="utf-8") if file.is_file() else told.get("chat_template")
    if not isinstance(text, str):
        return None
    return re.sub(r"\{%(-?)\s*(?:end)?generation\s*(-?)%\}", r"{#\1 \2#}", text)  # a comment strips the same spaces
