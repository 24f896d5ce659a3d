"""A GGUF file as a directory that everything else loads: `--model file.gguf`.

A quantised file can neither be trained nor saved, so it is dequantised once and kept in the folder of downloads, under
a name that its size and its contents give it: weights in float32 (a 4-bit block holds a scale and an offset in float16,
which no 16-bit type can hold after the multiplication), or in bfloat16 where float32 would take more than 8 GiB.
"""

from __future__ import annotations

import hashlib
import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from burnish.util.paths import home

ENDS = 1 << 20  # bytes at the beginning and at the end of a file that identify it
LARGE = 2 << 30  # bytes of a quantised file whose weights are kept in bfloat16


def converted(file: Path) -> Path:
    """The directory of a GGUF file's model, made at the first call; ValueError where transformers cannot read it."""
    if importlib.util.find_spec("gguf") is None:
        raise ValueError(f"model {str(file)!r} is a GGUF file, which needs gguf: pip install 'burnish[smollm2]'")
    target = home() / "models" / f"{file.stem}-{_identity(file)}"
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{file.stem}-", dir=target.parent) as aside:
        with Console(stderr=True).status(f"dequantising {file.name}, once"):
            made = dequantised(file, Path(aside) / "model")
        made.replace(target)
    return target


def _identity(file: Path) -> str:
    """A hash of the file's size, beginning and end."""
    size = file.stat().st_size
    with file.open("rb") as stored:
        told = stored.read(ENDS)
        stored.seek(max(0, size - ENDS))
        return hashlib.sha256(f"{size}".encode() + told + stored.read(ENDS)).hexdigest()[:12]


def dequantised(file: Path, folder: Path) -> Path:
    """The model of a GGUF file as safetensors, with its tokenizer and its chat template."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    where: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, trust_remote_code=False, **where)
        model: Any = AutoModelForCausalLM.from_pretrained(
            file.parent,
            trust_remote_code=False,
            dtype="bfloat16" if file.stat().st_size > LARGE else "float32",
            quantization_config=GgufConfig(gguf_file=file.name, dequantize=True),
            **where,
        )
    except MemoryError:
        raise
    except Exception as error:  # gguf and transformers raise all kinds
        why = str(error).strip().partition("\n")[0].rstrip(". ") or type(error).__name__
        raise ValueError(
            f"the GGUF file {file} cannot be read ({why}); convert it with llama.cpp's or transformers' tools to "
            "safetensors, and pass that directory"
        ) from None
    split_digits(tokenizer, _splitter(file))
    for config in (model.config, model.generation_config):
        config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    logging.enable_progress_bar()
    return folder


def _splitter(file: Path) -> str:
    """The name of the tokenizer's splitter, as the file has it; empty where it has none."""
    from gguf import GGUFReader

    field = GGUFReader(file).get_field("tokenizer.ggml.pre")
    return "" if field is None else str(field.contents())


def split_digits(tokenizer: Any, splitter: str) -> None:
    """Put the splitter back that takes digits one by one, where the conversion lost it (SmolLM)."""
    from tokenizers import pre_tokenizers

    if splitter == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
