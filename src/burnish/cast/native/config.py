"""The config.json of a Llama, a Qwen2 or a Qwen3 that burnish reads by itself."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from burnish.cast import attention

KINDS = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
PLAIN = {  # what must be so, where a config speaks of it
    "hidden_act": "silu",
    "attention_bias": False,
    "use_sliding_window": False,
    "use_mrope": False,
    "mlp_bias": False,
    "pretraining_tp": 1,
    "partial_rotary_factor": 1.0,
    "rope_scaling": None,
    "quantization_config": None,
    "auto_map": None,
}
NEEDED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps")


class Shape(SimpleNamespace):
    """A config as attributes, as much of transformers' own as burnish asks for. `told`: the config.json itself."""

    told: dict[str, Any]

    def get_text_config(self) -> Shape:
        return self


def shape_of(path: Path) -> Shape | None:
    """The shape of a directory's model; None where the model is not a plain Llama, Qwen2 or Qwen3 in safetensors."""
    told = read_json(path / "config.json")
    if told is None or told.get("model_type") not in KINDS or any(told.get(name) is None for name in NEEDED):
        return None
    if told.get("architectures", kind := [KINDS[told["model_type"]]]) != kind:
        return None
    if set(told.get("layer_types") or ()) - {"full_attention"}:
        return None
    normed = told["model_type"] == "qwen3"
    if normed and not told.get("head_dim"):  # which is not what the sizes say
        return None
    rope = told.get("rope_parameters") or {"rope_theta": told.get("rope_theta"), "rope_type": "default"}
    known = set(rope) <= {"rope_theta", "rope_type", "partial_rotary_factor"} and rope.get("rope_type") == "default"
    plain = all(told.get(name, wanted) == wanted for name, wanted in PLAIN.items())
    if not plain or not known or not rope.get("rope_theta") or rope.get("partial_rotary_factor", 1.0) != 1.0:
        return None
    heads = told["num_attention_heads"]
    filled = {
        **told,
        "num_key_value_heads": told.get("num_key_value_heads") or heads,
        "head_dim": told.get("head_dim") or told["hidden_size"] // heads,
        "rope_theta": float(rope["rope_theta"]),
        "tie_word_embeddings": told.get("tie_word_embeddings", False),
        "sliding_window": None,  # a Qwen2 may name one that it does not use
        "biased": told["model_type"] == "qwen2",  # what attention reads
        "normed": normed,  # heads of queries and keys
        "_attn_implementation": attention.NAME,
    }
    return Shape(told=told, **filled)


def read_json(file: Path) -> dict[str, Any] | None:
    """A file's JSON object; None where it holds none."""
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
