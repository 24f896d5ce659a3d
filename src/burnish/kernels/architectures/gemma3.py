"""Gemma 3 (text): norms with weights 1 + w before and after attention and MLP, norms of heads, a tanh-approximated
GELU, scaled embeddings, and two kinds of layers, most with a window and a rotation of a short base, the others without
and of a long.
"""

from __future__ import annotations

from burnish.kernels.architectures.spec import (
    Config,
    DecoderSpec,
    LayerSpec,
    Norms,
    asks_for,
    decoder_of,
    layer_windows,
    like_llama,
    rotary_of,
)

NORMS = Norms("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


def spec(config: Config) -> DecoderSpec | None:
    """The spec of a Gemma 3; None where its config asks for more."""
    if asks_for(config, attention_bias=False, use_bidirectional_attention=False) or not config.get("layer_types"):
        return None
    layers: list[LayerSpec | None] = []
    for kind, window in zip(config["layer_types"], layer_windows(config), strict=True):
        rotary = rotary_of(config, kind)
        more = {"rotary": rotary, "window": window, "scale": float(config["query_pre_attn_scalar"]) ** -0.5}
        layers.append(like_llama(config, offset=1.0, head_norms=True, norms=NORMS, **more) if rotary else None)
    return decoder_of(config, "Gemma3DecoderLayer", layers, embedding_scale=float(config["hidden_size"]) ** 0.5)
