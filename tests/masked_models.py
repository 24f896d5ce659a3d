"""Small masked language models on `tiny`'s tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, EuroBertConfig, EuroBertForMaskedLM, LlamaForCausalLM

import burnish

TINY = Path(burnish.__file__).parent / "models" / "tiny"


def masked_model(path: Path, block: int = 4, seed: int = 0) -> Path:
    """A directory with a random EuroBERT of two layers, and `tiny`'s tokenizer with a mask token."""
    tokenizer: Any = AutoTokenizer.from_pretrained(TINY)
    tokenizer.add_special_tokens({"mask_token": "<|mask|>"})
    torch.manual_seed(seed)
    config = EuroBertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        mask_token_id=tokenizer.mask_token_id,
        initializer_range=0.2,
    )
    config.block_length = block
    EuroBertForMaskedLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def from_tiny() -> tuple[EuroBertForMaskedLM, set[str]]:
    """`tiny`'s tensors in a EuroBERT of its shape, and the names of those that are missing."""
    start = LlamaForCausalLM.from_pretrained(TINY, dtype=torch.float32)
    told = start.config
    config = EuroBertConfig(
        vocab_size=told.vocab_size,
        hidden_size=told.hidden_size,
        intermediate_size=told.intermediate_size,
        num_hidden_layers=told.num_hidden_layers,
        num_attention_heads=told.num_attention_heads,
        num_key_value_heads=told.num_key_value_heads,
        rms_norm_eps=told.rms_norm_eps,
        rope_parameters=told.rope_parameters,
        max_position_embeddings=told.max_position_embeddings,
        tie_word_embeddings=True,
        pad_token_id=told.pad_token_id,
        bos_token_id=None,
        eos_token_id=told.eos_token_id,
        mask_token_id=told.pad_token_id,
    )
    model = EuroBertForMaskedLM(config)
    found = model.load_state_dict(start.state_dict(), strict=False)
    assert not found.unexpected_keys
    return model, set(found.missing_keys)
