"""What a fast path knows about a decoder: numbers and choices, no code and no weights.

A layer of this class computes, for the residual stream x [N, hidden]:

    h = norm(x);  q, k, v = h Wq, h Wk, h Wv (+ biases);  q, k = rotated(head_norm(q), head_norm(k))
    x <- x + post_norm(attention(q, k, v) Wo)
    h = norm(x);  x <- x + post_norm(mlp(h)),  mlp(h) = (act(h Wg) * h Wu) Wd, or a weighted sum of such experts

    norm(x) = x / sqrt(mean x^2 + eps) * (offset + w)

One file per architecture family builds the spec from the family's config. A config that asks for anything else has no
spec (None), and the model runs in its own modules. The user of a spec compares it with the modules that it was built
for (kernels/triton/weights.py) and with their numbers (kernels/triton/verify.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Config = Mapping[str, Any]  # a config.json, or `to_dict` of a transformers config
Activation = Literal["silu", "gelu_tanh"]
ACTIVATIONS: dict[str, Activation] = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
STILL = ("default", "linear", "llama3", "yarn")  # rotations that depend on nothing but the position


@dataclass(frozen=True)
class Rotary:
    """A rotation of queries and keys. table: which of its tables the model's rotary module is asked for; None: it has
    one."""

    kind: str
    theta: float
    table: str | None = None


@dataclass(frozen=True)
class Experts:
    """A router's softmax picks `chosen` of `count` experts of width `width`. normalised: their weights are divided by
    their sum."""

    count: int
    chosen: int
    width: int
    normalised: bool


@dataclass(frozen=True)
class Norms:
    """The names of a layer's norms: before and after attention, before and after the MLP; None: there is none after
    it."""

    before_attention: str = "input_layernorm"
    after_attention: str | None = None
    before_mlp: str = "post_attention_layernorm"
    after_mlp: str | None = None


@dataclass(frozen=True)
class LayerSpec:
    """One layer. scale: of attention's scores; window: how many tokens a token attends to, itself included; None: all.

    inner: the width of the MLP; of no use where there are experts.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    eps: float
    scale: float
    rotary: Rotary
    window: int | None = None
    activation: Activation = "silu"
    offset: float = 0.0
    biased: bool = False
    head_norms: bool = False
    norms: Norms = Norms()
    experts: Experts | None = None

    @property
    def post_norms(self) -> bool:
        """Whether what attention and the MLP add to the stream is normalised first."""
        return self.norms.after_attention is not None

    @property
    def of_heads(self) -> tuple[int, int, int]:
        """Heads of queries, heads of keys, and their size."""
        return self.heads, self.kv_heads, self.head_dim


@dataclass(frozen=True)
class DecoderSpec:
    """A decoder. layer_class: the transformers class of its layers; context: how many positions it has.

    embedding_scale: what input embeddings are multiplied by; tied: whether the head's matrix is the table of
    embeddings.
    """

    layer_class: str
    layers: tuple[LayerSpec, ...]
    vocabulary: int
    context: int
    tied: bool
    embedding_scale: float = 1.0

    @property
    def first(self) -> LayerSpec:
        """Layers differ in their windows, rotations and experts; what they have in common is the first one's, too."""
        return self.layers[0]


def asks_for(config: Config, **plain: Any) -> bool:
    """Whether a config that speaks of these fields wants something else than this."""
    return any(config.get(name, wanted) != wanted for name, wanted in plain.items())


def head_dim_of(config: Config) -> int:
    """The size of a head, which a config may leave to the other sizes."""
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def rotary_of(config: Config, table: str | None = None) -> Rotary | None:
    """The rotation that a config speaks of, in transformers' present form or in the older one; None: not one of
    ours."""
    found = config.get("rope_parameters")
    if found is None:
        found = {"rope_theta": config.get("rope_theta"), **(config.get("rope_scaling") or {"rope_type": "default"})}
    if table is not None:
        found = found.get(table) or {}
    kind, part = found.get("rope_type"), found.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if kind not in STILL or not found.get("rope_theta") or part not in (1.0, None):
        return None
    return Rotary(kind, float(found["rope_theta"]), table)


def layer_windows(config: Config) -> list[int | None]:
    """The window of each layer, of a config that says which of its layers slide."""
    kinds = config.get("layer_types") or ["full_attention"] * config["num_hidden_layers"]
    return [config["sliding_window"] if kind == "sliding_attention" else None for kind in kinds]


def like_llama(config: Config, **more: Any) -> LayerSpec | None:
    """A layer with an activation of ours and one rotation; `more`: what is different about it."""
    rotary = more.pop("rotary", None) or rotary_of(config)
    activation = ACTIVATIONS.get(config.get("hidden_act") or config.get("hidden_activation") or "")
    if rotary is None or activation is None or config.get("quantization_config") is not None:
        return None
    heads, size = int(config["num_attention_heads"]), head_dim_of(config)
    given = {
        "hidden": int(config["hidden_size"]),
        "heads": heads,
        "kv_heads": int(config.get("num_key_value_heads") or heads),
        "head_dim": size,
        "inner": int(config["intermediate_size"]),
        "eps": float(config["rms_norm_eps"]),
        "scale": size**-0.5,
        "activation": activation,
        "rotary": rotary,
    }
    return LayerSpec(**{**given, **more})


def decoder_of(config: Config, layer_class: str, layers: list[LayerSpec | None], **more: Any) -> DecoderSpec | None:
    """The decoder of these layers; None where one of them has no spec, or where logits are soft-capped."""
    found = tuple(layer for layer in layers if layer is not None)
    if not found or len(found) < len(layers) or len(layers) != config["num_hidden_layers"]:
        return None
    if asks_for(config, final_logit_softcapping=None, attn_logit_softcapping=None, auto_map=None):
        return None
    kinds = config.get("layer_types")  # where a config has them, each must be what the layer's spec says
    if kinds and kinds != ["full_attention" if layer.window is None else "sliding_attention" for layer in found]:
        return None
    context, tied = int(config.get("max_position_embeddings") or 0), bool(config.get("tie_word_embeddings"))
    return DecoderSpec(layer_class, found, int(config["vocab_size"]), context, tied, **more)
