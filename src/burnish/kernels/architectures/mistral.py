"""Mistral: Llama's layer, every one with the same sliding window, or none with any."""

from __future__ import annotations

from burnish.kernels.architectures.spec import Config, DecoderSpec, decoder_of, like_llama


def spec(config: Config) -> DecoderSpec | None:
    """The spec of a Mistral; None where its config asks for more."""
    layer = like_llama(config, window=config.get("sliding_window"))
    return decoder_of(config, "MistralDecoderLayer", [layer] * config["num_hidden_layers"])
