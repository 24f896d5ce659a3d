"""Architectures as data: one file per family, each of which makes a spec of the family's config."""

from __future__ import annotations

from collections.abc import Callable

from burnish.kernels.architectures import gemma3, llama, mistral, qwen2, qwen3, qwen3_moe
from burnish.kernels.architectures.spec import Config, DecoderSpec

FAMILIES: dict[str, Callable[[Config], DecoderSpec | None]] = {
    "llama": llama.spec,
    "mistral": mistral.spec,
    "qwen2": qwen2.spec,
    "qwen3": qwen3.spec,
    "qwen3_moe": qwen3_moe.spec,
    "gemma3_text": gemma3.spec,
}


def spec_of(config: Config) -> DecoderSpec | None:
    """The spec of a model; None where its type has none, or where its config asks for more than a spec can say."""
    family = FAMILIES.get(config.get("model_type", ""))
    return None if family is None else family(config)
