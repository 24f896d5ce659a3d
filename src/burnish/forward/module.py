"""What burnish asks of a transformers model besides its forward pass: the decoder under the head, the
head, its sizes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn


class ModelConfig(Protocol):
    """A configuration of transformers. What only some architectures have is read with getattr."""

    num_attention_heads: int
    num_hidden_layers: int
    hidden_size: int
    _attn_implementation: str

    def get_text_config(self) -> ModelConfig: ...

    def __getattr__(self, name: str) -> Any: ...


if TYPE_CHECKING:

    class TransformersModel(nn.Module):
        """A model of transformers, or our own module in its place."""

        config: ModelConfig
        score: nn.Linear

        @property
        def base_model(self) -> TransformersModel: ...

        def get_decoder(self) -> TransformersModel: ...

        def get_input_embeddings(self) -> nn.Embedding: ...

        def get_output_embeddings(self) -> nn.Linear: ...


def bare(module: nn.Module) -> TransformersModel:
    """The transformers model, without the wrapper that adapters put around it."""
    wrapped: Any = module
    model: TransformersModel = wrapped.get_base_model() if "peft" in type(module).__module__ else wrapped
    return model


def decoder(module: nn.Module) -> TransformersModel:
    """The transformer under the head, adapters included; of a model that sees, the language model inside."""
    inner = bare(module)
    if inner.base_model is inner or hasattr(inner.base_model, "get_image_features"):
        return inner.get_decoder()
    return inner.base_model


def decoder_states(module: nn.Module, **inputs: object) -> Tensor:
    """[B, T, H]: the last hidden states, from the decoder under the head."""
    states: Tensor = decoder(module)(**inputs, use_cache=False).last_hidden_state
    return states


def text_config(module: nn.Module) -> ModelConfig:
    """The configuration of the language model, also where it is a part of a larger model's."""
    wrapped: Any = module  # adapters pass the attribute on
    config: ModelConfig = wrapped.config
    return config.get_text_config()


def input_embeddings(module: nn.Module) -> nn.Embedding:
    """The table of input embeddings [V, H]."""
    inner: Any = module  # adapters pass the call on
    table: nn.Embedding = inner.get_input_embeddings()
    return table


def vocabulary_size(module: nn.Module) -> int:
    """How many tokens the model can read."""
    return len(input_embeddings(module).weight)


def wide(x: Tensor) -> Tensor:
    """At least fp32: sums over tokens and softmaxes are never taken in half precision."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def head(module: nn.Module, states: Tensor) -> Tensor:
    """Logits from hidden states, with the scalings that some architectures apply after the matrix."""
    inner = bare(module)
    config = inner.config.get_text_config()
    logits = wide(inner.get_output_embeddings()(states))
    if scaling := getattr(config, "logits_scaling", None):  # Granite
        logits = logits / scaling
    if scale := getattr(config, "logit_scale", None):  # Cohere
        logits = logits * scale
    if cap := getattr(config, "final_logit_softcapping", None):  # Gemma
        logits = cap * torch.tanh(logits / cap)
    return logits


def scalar_head(module: nn.Module, states: Tensor) -> Tensor:
    """[N, k] from a value or reward head, or [N] for a single output."""
    matrix: Tensor = bare(module).score.weight
    return (wide(states) @ wide(matrix).t()).squeeze(-1)


def plain_head(module: nn.Module) -> tuple[Tensor, float] | None:
    """The matrix of a head that is only a matrix, and the factor that follows it; None for any other head."""
    inner = bare(module)
    matrix, config = inner.get_output_embeddings(), inner.config.get_text_config()
    capped = getattr(config, "final_logit_softcapping", None)
    if type(matrix) is not nn.Linear or matrix.bias is not None or capped:
        return None
    factor = (getattr(config, "logit_scale", None) or 1.0) / (getattr(config, "logits_scaling", None) or 1.0)
    return matrix.weight, factor
