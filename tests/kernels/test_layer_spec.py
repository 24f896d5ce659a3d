"""Architectures as data: what each family's spec says of a config, what has none, and that modules are compared with
it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers

from burnish.forward import attention
from burnish.kernels.architectures import FAMILIES, spec_of
from burnish.kernels.architectures.spec import DecoderSpec, Experts, Rotary
from burnish.kernels.cpu.config import runs_here
from burnish.kernels.triton.fused_qkv import join_projections
from burnish.kernels.triton.weights import layers_of

SIZES = {"vocab_size": 99, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "head_dim": 32}
SIZES |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 128}
MORE: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Mistral": {"sliding_window": 7},
    "Qwen2": {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    "Qwen3": {},
    "Gemma3Text": {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 7}
    | {"query_pre_attn_scalar": 20},
    "Qwen3Moe": {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "mlp_only_layers": [0]},
}


def config_of(kind: str, **changes: Any) -> Any:
    return getattr(transformers, kind + "Config")(**(SIZES | MORE[kind] | changes))


def found(kind: str, **changes: Any) -> DecoderSpec:
    spec = spec_of(config_of(kind, **changes).to_dict())
    assert spec is not None
    return spec


def modules(kind: str) -> Any:
    """The decoder of a model, its projections joined as on a GPU."""
    config = config_of(kind)
    config._attn_implementation = attention.register()
    model = transformers.AutoModelForCausalLM.from_config(config)
    join_projections(model)
    return model.model


def test_every_family_has_a_spec_that_its_modules_agree_with() -> None:
    assert {config_of(kind).model_type for kind in MORE} == set(FAMILIES)
    for kind in MORE:
        inner = modules(kind)
        layers = layers_of(inner, found(kind))
        assert layers is not None and len(layers) == 2, kind


def test_a_llama_is_what_the_others_are_described_against() -> None:
    llama = found("Llama").first
    assert (llama.of_heads, llama.inner, llama.scale) == ((2, 1, 32), 80, 32**-0.5)
    assert llama.rotary == Rotary("default", 10000.0)
    assert found("Mistral").layers == (replace(llama, window=7),) * 2
    assert found("Qwen2").layers == (replace(llama, biased=True), replace(llama, biased=True, window=9))
    assert found("Qwen3").layers == (replace(llama, head_norms=True),) * 2
    experts = Experts(count=5, chosen=2, width=24, normalised=False)
    assert found("Qwen3Moe").layers == tuple(replace(llama, head_norms=True, experts=e) for e in (None, experts))


def test_gemma_has_two_rotations_four_norms_and_scaled_embeddings() -> None:
    spec = found("Gemma3Text")
    near, far = spec.layers
    assert (near.window, far.window) == (7, None)
    assert near.rotary == Rotary("default", 1e4, "sliding_attention")
    assert far.rotary == Rotary("default", 1e6, "full_attention")
    assert near.scale == 20**-0.5 and near.offset == 1 and near.activation == "gelu_tanh" and near.head_norms
    assert near.post_norms and spec.embedding_scale == 48**0.5 and spec.tied


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("Llama", {"attention_bias": True}),
        ("Llama", {"hidden_act": "relu"}),
        ("Llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}),
        ("Qwen3", {"attention_bias": True}),
        ("Gemma3Text", {"final_logit_softcapping": 30.0}),
        ("Gemma3Text", {"attn_logit_softcapping": 50.0}),
        ("Gemma3Text", {"use_bidirectional_attention": True}),
        ("Gemma3Text", {"hidden_activation": "relu"}),
    ],
)
def test_what_a_spec_cannot_say_has_none(kind: str, change: dict[str, Any]) -> None:
    assert spec_of(config_of(kind).to_dict() | change) is None
    assert spec_of({"model_type": "gpt2"}) is None


def test_a_layer_type_that_is_not_known_has_no_spec() -> None:
    told = config_of("Qwen3").to_dict()
    assert spec_of(told | {"layer_types": ["full_attention", "linear_attention"]}) is None


def test_linear_and_llama3_rotations_keep_their_kind() -> None:
    for kind in ("linear", "llama3"):
        rope = {"rope_type": kind, "factor": 2.0, "rope_theta": 5e5}
        assert spec_of(config_of("Llama").to_dict() | {"rope_parameters": rope}).first.rotary == Rotary(kind, 5e5)  # type: ignore[union-attr]


def test_the_cpu_runs_llama_qwen2_and_qwen3_and_nothing_else() -> None:
    plain = {"use_sliding_window": False}
    runs = {kind: runs_here(found(kind, **(plain if kind == "Qwen2" else {}))) for kind in MORE}
    assert [kind for kind, yes in runs.items() if yes] == ["Llama", "Qwen2", "Qwen3"]


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("Llama", {"scale": 0.1}),
        ("Llama", {"eps": 1e-3}),
        ("Llama", {"window": 4}),
        ("Llama", {"biased": True}),
        ("Llama", {"head_norms": True}),
        ("Llama", {"inner": 72}),
        ("Mistral", {"window": 8}),
        ("Qwen2", {"biased": False}),
        ("Qwen3", {"head_norms": False}),
        ("Qwen3Moe", {"experts": Experts(6, 2, 24, False)}),
        ("Gemma3Text", {"window": 8}),
    ],
)
def test_modules_that_are_not_what_the_spec_says_are_refused(kind: str, wrong: dict[str, Any]) -> None:
    inner, spec = modules(kind), found(kind)
    layers = (*spec.layers[:-1], replace(spec.layers[-1], **wrong))
    assert layers_of(inner, replace(spec, layers=layers)) is None
    assert layers_of(inner, replace(spec, layer_class="OtherLayer")) is None


def test_an_adapter_or_a_bias_inside_a_layer_is_refused() -> None:
    inner, spec = modules("Llama"), found("Llama")
    kept = inner.layers[1].self_attn.o_proj
    inner.layers[1].self_attn.o_proj = torch.nn.Sequential(kept)
    assert layers_of(inner, spec) is None
    inner.layers[1].self_attn.o_proj = torch.nn.Linear(64, 48)
    assert layers_of(inner, spec) is None
    inner.layers[1].self_attn.o_proj = kept
    assert layers_of(inner, spec) is not None
