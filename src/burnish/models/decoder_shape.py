"""The shape of a decoder that is not loaded, and the bytes that its weights, activations, keys and values take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.models.known_models import adapted_model
from burnish.models.precision import stored_tensors
from burnish.util.files import read_json

HALF = 2  # bytes of a bf16 number
NF4 = 4.25 / 8  # bytes of a weight in four bits, with its share of a scale


@dataclass(frozen=True)
class DecoderShape:
    """Sizes from config.json, and numbers of weights from the headers of the files (without files: from config.json).

    weights  all of them;  linear: those of the projections, which LoRA adapts and NF4 quantises
    """

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    head_norms: bool
    weights: int
    linear: int

    @classmethod
    def of(cls, path: Path) -> DecoderShape:
        """The shape of the model in a directory."""
        place = adapted_model(path)
        told: Mapping[str, Any] = read_json(place / "config.json") or {}
        told = {**told, **(told.get("text_config") or {})}
        if not {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"} <= told.keys():
            told = {**_by_usual_names(place), **told}
        hidden = _number(told, "hidden_size", "n_embd")
        heads = _number(told, "num_attention_heads", "n_head", default=max(1, hidden // 64))  # Mamba has none
        counts = [(name, count) for name, _, count in stored_tensors(place)] or described_tensors(place)
        return cls(
            hidden=hidden,
            inner=_number(told, "intermediate_size", "n_inner", default=4 * hidden),
            layers=_number(told, "num_hidden_layers", "n_layer"),
            heads=heads,
            kv_heads=_number(told, "num_key_value_heads", default=heads),
            head_dim=_number(told, "head_dim", default=max(1, hidden // heads)),
            vocabulary=_number(told, "vocab_size"),
            head_norms=any(name.endswith("q_norm.weight") for name, _ in counts),
            weights=sum(count for _, count in counts),
            linear=sum(count for name, count in counts if name.endswith("_proj.weight")),
        )

    @property
    def _kept(self) -> int:
        """Numbers that a layer's backward pass keeps of a token (kernels/triton/packed_layer.py): the residual stream
        twice, queries, keys and values, attention's output, gate and up; with norms of heads q and k once more.
        """
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return 2 * self.hidden + 2 * queries + 2 * keys + 2 * self.inner + (queries + keys if self.head_norms else 0)

    def activation_bytes(self, recomputed: bool = False) -> float:
        """Kept for the backward pass of one token; recomputed: the input of each layer alone."""
        return HALF * self.layers * (2 * self.hidden if recomputed else self._kept)

    def layer_bytes(self) -> float:
        """Of one token while a layer is computed again and backwards."""
        return HALF * (6 * self.hidden + 5 * self.inner + self._kept)

    def kv_bytes(self) -> int:
        """Keys and values of one token."""
        return 2 * HALF * self.layers * self.kv_heads * self.head_dim

    def lora_weights(self, rank: int) -> int:
        """Weights of adapters on all projections."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sides = 2 * (self.hidden + queries) + 2 * (self.hidden + keys) + 3 * (self.hidden + self.inner)
        return self.layers * rank * sides

    def frozen_bytes(self, quantised: bool) -> float:
        """Of the weights where they are not trained: bf16, or the projections in four bits."""
        return HALF * (self.weights - self.linear) + (NF4 if quantised else HALF) * self.linear


def _by_usual_names(place: Path) -> dict[str, object]:
    """What a configuration says under names of its own, by the usual ones; nothing of an unknown one."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(place, trust_remote_code=False).get_text_config()
    except Exception:  # transformers raises many kinds; what is missing is then named
        return {}
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size", "head_dim")
    return {name: getattr(config, name, None) for name in (*names, "intermediate_size")}


def described_tensors(place: Path) -> list[tuple[str, int]]:
    """Name and number of weights of each tensor that transformers would make of a config.json; none is made."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(place, trust_remote_code=False)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds; all mean that config.json describes no decoder
        why = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"{place / 'config.json'} describes no decoder that transformers knows ({why[:200]})"
        ) from None
    return [(name, weight.numel()) for name, weight in model.named_parameters()]


def _number(told: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    number = next((told[name] for name in names if isinstance(told.get(name), int)), default)
    if number is None:
        raise ValueError(f"config.json does not say {names[0]}; burnish plan and --memory need a plain decoder's")
    return int(number)
