"""The embedded model `tiny`: plain transformers loads it, its tokenizer loses nothing, its template ends turns."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

import burnish
from burnish.tasks.table import BUILTIN, source

TINY = Path(burnish.__file__).parent / "models" / "tiny"


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(TINY)


def test_it_is_small_and_loads() -> None:
    assert (TINY / "model.safetensors").stat().st_size <= 8_000_000
    model = AutoModelForCausalLM.from_pretrained(TINY)
    assert 2.5e6 < sum(p.numel() for p in model.parameters()) < 4e6
    assert model.config.model_type == "llama" and model.config.tie_word_embeddings
    assert model.generation_config.eos_token_id == 1 and model.generation_config.pad_token_id == 0


def test_the_tokenizer_loses_nothing_and_splits_digits(tokenizer) -> None:
    for text in ("héllo  wörld\n\t 12 3x 日本 🙂 <>&", "  x ", "answer: a b\n", "12345"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert len(tokenizer("12345")["input_ids"]) == 5
    assert tokenizer.pad_token_id != tokenizer.eos_token_id


def test_the_template_speaks_in_turns(tokenizer) -> None:
    talk = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1=?"},
        {"role": "assistant", "content": "answer: 2"},
    ]
    text = "<|system|>Be brief.<|end|><|user|>1+1=?<|end|><|assistant|>"
    assert tokenizer.apply_chat_template(talk[:2], tokenize=False, add_generation_prompt=True) == text
    assert tokenizer.apply_chat_template(talk, tokenize=False) == text + "answer: 2<|end|>"
    ids = tokenizer.apply_chat_template(talk, return_dict=True)["input_ids"]
    assert ids[-1] == tokenizer.eos_token_id
    with pytest.raises(Exception, match="unknown to tiny"):
        tokenizer.apply_chat_template([{"role": "judge", "content": ""}], tokenize=False)


@pytest.mark.parametrize("name", BUILTIN)
def test_prompts_and_replies_are_short(tokenizer, name: str) -> None:
    for index in range(50):
        task = source(name).task("train", index)
        assert len(tokenizer(task.prompt[0]["content"])["input_ids"]) <= 30
        assert len(tokenizer(task.given.get("demo", ""))["input_ids"]) <= 52
