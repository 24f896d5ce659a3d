"""Llama: the layer that all others are described against."""

from __future__ import annotations

from burnish.kernels.architectures.spec import Config, DecoderSpec, asks_for, decoder_of, like_llama


def spec(config: Config) -> DecoderSpec | None:
    """The spec of a Llama; None where its config asks for more."""
    if asks_for(config, attention_bias=False, mlp_bias=False, pretraining_tp=1):
        return None
    return decoder_of(config, "LlamaDecoderLayer", [like_llama(config)] * config["num_hidden_layers"])
