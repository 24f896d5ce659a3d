"""Qwen2: Llama's layer with biases on queries, keys and values; some layers may have a sliding window."""

from __future__ import annotations

from burnish.kernels.architectures.spec import Config, DecoderSpec, asks_for, decoder_of, layer_windows, like_llama


def spec(config: Config) -> DecoderSpec | None:
    """The spec of a Qwen2; None where its config asks for more."""
    if asks_for(config, use_mrope=False):
        return None
    layers = [like_llama(config, biased=True, window=window) for window in layer_windows(config)]
    return decoder_of(config, "Qwen2DecoderLayer", layers)
