"""The config.json of a Llama, a Qwen2 or a Qwen3 that burnish reads by itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from burnish.forward import attention
from burnish.kernels.architectures import spec_of
from burnish.kernels.architectures.spec import DecoderSpec, head_dim_of
from burnish.util.files import read_json

KINDS = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
PLAIN = {  # what must be so, where a config.json speaks of it: these files leave out what transformers would fill in
    "attention_bias": False,
    "mlp_bias": False,
    "pretraining_tp": 1,
    "use_mrope": False,
    "use_sliding_window": False,
    "partial_rotary_factor": 1.0,
    "rope_scaling": None,
}
OF_ROTATION = {"rope_theta", "rope_type", "partial_rotary_factor"}
NEEDED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps")


class Shape(SimpleNamespace):
    """A config as attributes, as much of transformers' own as burnish asks for. `told`: the config.json itself; `spec`:
    of it."""

    told: dict[str, Any]
    spec: DecoderSpec

    def get_text_config(self) -> Shape:
        return self


def runs_here(spec: DecoderSpec) -> bool:
    """Whether the C kernels and their torch twins compute such a decoder: Llama's layers, with biases or norms of
    heads."""
    first = spec.first
    plain = first.activation == "silu" and first.offset == 0 and not first.post_norms and first.experts is None
    alike = all(layer == first for layer in spec.layers) and first.window is None and spec.embedding_scale == 1
    return plain and alike and first.rotary.kind == "default" and first.scale == first.head_dim**-0.5


def shape_of(path: Path) -> Shape | None:
    """The shape of a directory's model; None where the model is not a plain Llama, Qwen2 or Qwen3 in safetensors."""
    told = read_json(path / "config.json")
    return None if told is None else shape_from(told)


def shape_from(told: dict[str, Any]) -> Shape | None:
    """The shape of the model with this config; None where it is not a plain Llama, Qwen2 or Qwen3."""
    if told.get("model_type") not in KINDS or any(told.get(name) is None for name in NEEDED):
        return None
    if told.get("architectures", kind := [KINDS[told["model_type"]]]) != kind:
        return None
    filled = {"hidden_act": "silu", "tie_word_embeddings": False, **told}
    plain = all(told.get(name, wanted) == wanted for name, wanted in PLAIN.items())
    spec = spec_of(filled) if plain and set(told.get("rope_parameters") or ()) <= OF_ROTATION else None
    if spec is None or not runs_here(spec):
        return None
    if spec.first.head_norms and not told.get("head_dim"):  # a Qwen3's is then not what the sizes say
        return None
    filled |= {
        "num_key_value_heads": spec.first.kv_heads,
        "head_dim": head_dim_of(told),
        "sliding_window": None,  # a Qwen2 may name one that it does not use
        "_attn_implementation": attention.NAME,
    }
    return Shape(told=told, spec=spec, **filled)
