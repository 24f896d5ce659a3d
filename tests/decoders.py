"""Decoders of transformers with tiny random weights, and the paths on which each of them runs."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import torch

TOKENS: dict[str, Any] = {"vocab_size": 260, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
WIDE: dict[str, Any] = TOKENS | {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
}
HEADS = WIDE | {"head_dim": 8}
EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
}
GPT2 = TOKENS | {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
LATENT = WIDE | {
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
}
STATE_SPACE = TOKENS | {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "conv_kernel": 4, "expand": 2}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"],
    "shared_expert_intermediate_size": 16,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}

PACKED, PADDED, ALONE = "packed rows", "padded rows", "one row at a time"
ENGINE, CACHE, NO_CACHE = "the engine", "transformers' cache", "no cache"


@dataclass(frozen=True)
class Decoder:
    """config: what it is made with; training, sampling: its paths; why: what keeps it from the fast ones."""

    config: dict[str, Any]
    training: str = PACKED
    sampling: str = ENGINE
    why: str = ""


ALIBI, OWN_ATTENTION = "ALiBi, in an attention of its own", "an attention of its own"
DECODERS = {
    "apertus": Decoder(HEADS),
    "arcee": Decoder(HEADS),
    "bamba": Decoder(
        WIDE
        | {
            "attn_layer_indices": [1],
            "mamba_d_state": 8,
            "mamba_n_heads": 8,
            "mamba_d_head": 8,
            "mamba_n_groups": 2,
            "mamba_chunk_size": 8,
        },
        PADDED,
        NO_CACHE,
        "state-space layers, a cache that disagrees",
    ),
    "biogpt": Decoder(WIDE),
    "bloom": Decoder(TOKENS | {"hidden_size": 32, "n_layer": 2, "n_head": 4}, PADDED, CACHE, ALIBI),
    "codegen": Decoder(GPT2 | {"rotary_dim": 4}, PADDED, CACHE, OWN_ATTENTION),
    "cohere": Decoder(WIDE),
    "cohere2": Decoder(HEADS | {"sliding_window": 4}),
    "ctrl": Decoder(GPT2 | {"dff": 48}),
    "deepseek_v2": Decoder(LATENT, PACKED, CACHE, "latent attention: values narrower than keys"),
    "deepseek_v3": Decoder(LATENT, PACKED, CACHE, "latent attention: values narrower than keys"),
    "diffllama": Decoder(HEADS, PACKED, CACHE, "two attentions in a layer"),
    "doge": Decoder(HEADS, PADDED, CACHE, "a mask made from the values"),
    "ernie4_5": Decoder(HEADS),
    "exaone4": Decoder(WIDE | {"sliding_window": 4}),
    "falcon": Decoder(WIDE, PADDED, CACHE, OWN_ATTENTION),
    "falcon, alibi": Decoder(WIDE | {"alibi": True}, PADDED, CACHE, ALIBI),
    "falcon_mamba": Decoder(STATE_SPACE, PADDED, CACHE, "state-space layers"),
    "gemma": Decoder(HEADS),
    "gemma2": Decoder(
        HEADS | {"sliding_window": 4, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 8},
        PADDED,
        CACHE,
        "soft-capped scores",
    ),
    "gemma3_text": Decoder(HEADS | {"sliding_window": 4, "query_pre_attn_scalar": 8}),
    "glm": Decoder(HEADS),
    "glm4": Decoder(HEADS),
    "gpt2": Decoder(GPT2),
    "gpt_bigcode": Decoder(GPT2),
    "gpt_neo": Decoder(
        TOKENS
        | {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
            "max_position_embeddings": 128,
            "intermediate_size": 48,
        },
        PADDED,
        CACHE,
        OWN_ATTENTION,
    ),
    "gpt_neox": Decoder(WIDE),
    "gpt_oss": Decoder(HEADS | EXPERTS | {"sliding_window": 4}, PADDED, CACHE, "attention sinks"),
    "gptj": Decoder(GPT2 | {"rotary_dim": 4}, PADDED, CACHE, OWN_ATTENTION),
    "granite": Decoder(WIDE | {"logits_scaling": 4.0, "residual_multiplier": 0.5, "embedding_multiplier": 3.0}),
    "granitemoe": Decoder(WIDE | EXPERTS),
    "helium": Decoder(HEADS),
    "hunyuan_v1_dense": Decoder(HEADS),
    "jais2": Decoder(HEADS),
    "jamba": Decoder(
        WIDE
        | {
            "num_experts": 2,
            "num_experts_per_tok": 1,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "mamba_d_state": 8,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "use_mamba_kernels": False,
        },
        PADDED,
        CACHE,
        "state-space layers",
    ),
    "lfm2": Decoder(
        WIDE | {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
        PADDED,
        CACHE,
        "short convolutions",
    ),
    "llama": Decoder(HEADS),
    "llama4_text": Decoder(
        HEADS | {"num_local_experts": 4, "attention_chunk_size": 4, "intermediate_size_mlp": 48},
        ALONE,
        CACHE,
        "a decoder that cannot be run without its head",
    ),
    "mamba": Decoder(STATE_SPACE, PADDED, CACHE, "state-space layers"),
    "mamba2": Decoder(
        STATE_SPACE | {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8},
        PADDED,
        CACHE,
        "state-space layers",
    ),
    "minimax": Decoder(HEADS | EXPERTS, PADDED, CACHE, "linear attention"),
    "mistral": Decoder(HEADS | {"sliding_window": 6}),
    "mixtral": Decoder(HEADS | EXPERTS),
    "mpt": Decoder(
        TOKENS | {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 128, "expansion_ratio": 2},
        PADDED,
        CACHE,
        ALIBI,
    ),
    "nemotron": Decoder(HEADS),
    "olmo": Decoder(WIDE),
    "olmo2": Decoder(WIDE),
    "olmo3": Decoder(WIDE | {"sliding_window": 4}),
    "olmoe": Decoder(WIDE | EXPERTS),
    "openai-gpt": Decoder(GPT2, PADDED, NO_CACHE, "an attention of its own, and no cache"),
    "opt": Decoder(WIDE | {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "persimmon": Decoder(WIDE),
    "phi": Decoder(WIDE),
    "phi3": Decoder(WIDE),
    "phimoe": Decoder(WIDE | EXPERTS),
    "qwen2": Decoder(WIDE),
    "qwen2_moe": Decoder(WIDE | EXPERTS | {"shared_expert_intermediate_size": 16}),
    "qwen3": Decoder(HEADS),
    "qwen3_moe": Decoder(HEADS | EXPERTS),
    "qwen3_next": Decoder(HEADS | EXPERTS | LINEAR, PADDED, CACHE, "linear attention"),
    "rwkv": Decoder(
        TOKENS
        | {
            "hidden_size": 32,
            "attention_hidden_size": 32,
            "num_hidden_layers": 2,
            "intermediate_size": 48,
            "context_length": 128,
        },
        PADDED,
        NO_CACHE,
        "a recurrence, a cache that disagrees",
    ),
    "seed_oss": Decoder(HEADS),
    "smollm3": Decoder(WIDE | {"no_rope_layers": [1, 0]}),
    "stablelm": Decoder(WIDE),
    "starcoder2": Decoder(WIDE),
    "vaultgemma": Decoder(
        HEADS | {"sliding_window": 4, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 8},
        PADDED,
        CACHE,
        "soft-capped scores",
    ),
    "xglm": Decoder(
        TOKENS | {"d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 4, "max_position_embeddings": 128},
        PADDED,
        CACHE,
        OWN_ATTENTION,
    ),
}


def save_decoder(name: str, path: Path, tokenizer: Path) -> Path:
    """A decoder of the table with random weights in a directory like any other; tokenizer: a directory that has one."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(name.split(",")[0], **{"initializer_range": 0.3, **DECODERS[name].config})
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for p in model.parameters():
        if p.ndim == 1:  # biases and norms, which begin as zeros and ones
            p.data += 0.1 * torch.randn_like(p)
    path.mkdir(parents=True, exist_ok=True)
    for file in tokenizer.iterdir():
        if "token" in file.name or file.suffix == ".jinja":
            shutil.copy(file, path)
    model.save_pretrained(path)
    return path


def fast_in_docs() -> str:
    """The paragraph of docs/models.md with the types that run on the fast paths."""
    names = ", ".join(f"`{name}`" for name, decoder in DECODERS.items() if not decoder.why)
    return "\n".join(wrap(names, 118))


def slower_in_docs() -> str:
    """The table of docs/models.md with the types that run on slower paths."""
    slower = [(f"`{name}`", d.training, d.sampling, d.why) for name, d in DECODERS.items() if d.why]
    head = ["| type | training | sampling | because of |", "|---|---|---|---|"]
    return "\n".join([*head, *[f"| {' | '.join(row)} |" for row in slower]])
