"""Qwen3: Llama's layer with a norm on each head of queries and keys; some layers may have a sliding window."""

from __future__ import annotations

from burnish.kernels.architectures.spec import Config, DecoderSpec, asks_for, decoder_of, layer_windows, like_llama


def spec(config: Config) -> DecoderSpec | None:
    """The spec of a Qwen3; None where its config asks for more."""
    if asks_for(config, attention_bias=False):
        return None
    layers = [like_llama(config, head_norms=True, window=window) for window in layer_windows(config)]
    return decoder_of(config, "Qwen3DecoderLayer", layers)
