"""The numbers of a config.json, checked before a model is built: a wrong one would hang, or fill the memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LIMITS = {  # the largest that is believed
    "num_hidden_layers": 4096,
    "num_attention_heads": 1 << 16,
    "num_key_value_heads": 1 << 16,
    "head_dim": 1 << 16,
    "hidden_size": 1 << 20,
    "intermediate_size": 1 << 24,
    "vocab_size": 1 << 26,
    "max_position_embeddings": 1 << 40,
    "num_experts": 1 << 16,
    "num_local_experts": 1 << 16,
    "n_layer": 4096,
    "n_head": 1 << 16,
    "n_embd": 1 << 20,
}
WEIGHTS_A_BYTE = 16  # at most: weights of 4 bits are 2, and some weights are shared between layers


def check_config(path: Path) -> None:
    """Refuse a config.json that is damaged, or that describes another model than the weights beside it."""
    file = path / "config.json"
    try:
        told = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error).partition("\n")[0]
        raise ValueError(
            f"the model in {path} cannot be loaded (config.json cannot be read: {why[:200]}); write it again with "
            "save_pretrained, "
            "or pass another directory"
        ) from None
    if not isinstance(told, dict):
        raise ValueError(f"{file} is not a JSON object; write the model again with save_pretrained")
    _check_quantised(told.get("quantization_config"), path)
    size = sum(weights.stat().st_size for weights in path.glob("*.safetensors"))
    for config in (told, told.get("text_config")):
        if isinstance(config, dict):
            _check_numbers(config, file, size)


def _check_quantised(stored: object, path: Path) -> None:
    """Refuse weights that are stored quantised: they have no gradient, and no kernel of ours reads them."""
    how = stored.get("quant_method") if isinstance(stored, dict) else None
    if how is None and isinstance(stored, dict) and (stored.get("load_in_4bit") or stored.get("load_in_8bit")):
        how = "bitsandbytes"
    if how is not None and how != "mxfp4":  # gpt-oss is published so; transformers can widen it
        raise ValueError(
            f"the weights in {path} are quantised by {how}, and training needs the model that they were made from; "
            "pass that (if it is too large: --lora 16 --quantization nf4 makes 4 bits of each weight while it is read)"
        )


def _check_numbers(config: dict[str, Any], file: Path, size: int) -> None:
    for name, most in LIMITS.items():
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ValueError(
                f"{file} says {name} is {str(value)[:40]}; it must be a whole number from 1 to {most:,}: "
                "correct it, or pass another directory"
            )
    padding = config.get("pad_token_id")
    if padding is not None and (isinstance(padding, bool) or not isinstance(padding, int)):
        raise ValueError(
            f"{file} says pad_token_id is {str(padding)[:40]}; it must be a whole number: correct it, or pass another "
            "directory"
        )
    width = config.get("hidden_size") or config.get("n_embd") or 1
    layers = config.get("num_hidden_layers") or config.get("n_layer") or 1
    for what, weights in (
        (f"{layers:,} layers of width {width:,}", layers * width * width),
        (f"{config.get('vocab_size') or 1:,} tokens of width {width:,}", (config.get("vocab_size") or 1) * width),
    ):
        if size and weights > WEIGHTS_A_BYTE * max(size, 1 << 16):
            raise ValueError(
                f"{file} describes {what}, but the weights beside it have only {size:,} bytes; take the config.json "
                "that belongs "
                "to them"
            )
