"""Chat formats of model families: the template of each, its control tokens, and a small tokenizer of its kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DEFAULT_SYSTEM = (  # Qwen2.5 and SmolLM2 write a system message of their own where there is none
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}"
)
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' }}"
    "{{ m.content | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
)
PHI3 = (
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"
)
QWEN3 = (  # thinking is left out of earlier replies, and can be switched off
    "{% for m in messages %}{% set said = m.content %}"
    "{% if m.role == 'assistant' %}{% set said = m.content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\n' + said + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% if enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)


@dataclass(frozen=True)
class Family:
    """A chat format. kind: of tokenizer; end: the token that ends a turn; added: tokens that are not special."""

    template: str
    kind: str
    special: tuple[str, ...]
    eos: str
    end: str
    bos: str | None = None
    added: tuple[str, ...] = ()


FAMILIES = {
    "qwen2.5": Family(
        DEFAULT_SYSTEM + CHATML, "bytes", ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), "<|im_end|>", "<|im_end|>"
    ),
    "qwen3": Family(
        QWEN3,
        "bytes",
        ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        "<|im_end|>",
        "<|im_end|>",
        added=("<think>", "</think>"),
    ),
    "smollm2": Family(
        DEFAULT_SYSTEM + CHATML, "bytes", ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), "<|im_end|>", "<|im_end|>"
    ),
    "llama3": Family(
        LLAMA3,
        "bytes",
        ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|begin_of_text|>",
    ),
    "gemma": Family(
        GEMMA,
        "pieces",
        ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"),
        "<eos>",
        "<end_of_turn>",
        "<bos>",
    ),
    "mistral": Family(MISTRAL, "pieces", ("<unk>", "<s>", "</s>", "[INST]", "[/INST]"), "</s>", "</s>", "<s>"),
    "phi3": Family(
        PHI3,
        "pieces",
        ("<unk>", "<s>", "<|endoftext|>", "<|assistant|>", "<|user|>", "<|end|>"),
        "<|endoftext|>",
        "<|end|>",
        "<s>",
    ),
    "chatml, eos apart": Family(
        CHATML, "bytes", ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), "<|endoftext|>", "<|im_end|>"
    ),
    "chatml, not special": Family(
        CHATML, "bytes", ("<|endoftext|>",), "<|endoftext|>", "<|im_end|>", added=("<|im_start|>", "<|im_end|>")
    ),
}
WORDS = ("the", "an", "swer", "user", "assist", "ant", "model", "im", "end", "eot", "INST", "turn", "of", "_id")


def tokenizer_of(family: Family) -> PreTrainedTokenizerFast:
    """A tokenizer with the family's control tokens: byte-level BPE, or BPE as SentencePiece makes it."""
    inner = _bytes(family) if family.kind == "bytes" else _pieces(family)
    inner.add_tokens([AddedToken(token, normalized=False, special=False) for token in family.added])
    named: dict[str, Any] = {"eos_token": family.eos, "pad_token": family.special[0]}
    if family.bos:
        named["bos_token"] = family.bos
        bos = (family.bos, inner.token_to_id(family.bos))
        inner.post_processor = processors.TemplateProcessing(single=f"{family.bos} $A", special_tokens=[bos])
    made = PreTrainedTokenizerFast(tokenizer_object=inner, additional_special_tokens=list(family.special), **named)
    made.chat_template = family.template
    return made


def _merged(symbols: list[str], words: tuple[str, ...]) -> tuple[list[str], list[tuple[str, str]]]:
    """Symbols and merges that make whole words, letter by letter."""
    merges: list[tuple[str, str]] = []
    for word in words:
        made = word[0]
        for letter in word[1:]:
            if made + letter not in symbols:
                symbols.append(made + letter)
                merges.append((made, letter))
            made += letter
    return symbols, merges


def _bytes(family: Family) -> Tokenizer:
    symbols, merges = _merged(sorted(ByteLevel.alphabet()), (*WORDS, "\u0120the", "<|"))
    inner = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(symbols)}, merges=merges, ignore_merges=True))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(list(family.special))
    return inner


def _pieces(family: Family) -> Tokenizer:
    """Special tokens are in the vocabulary, and even come out of merges, as in converted SentencePiece models."""
    symbols = [*family.special, *(f"<0x{i:02X}>" for i in range(256)), "\u2581", *map(chr, range(33, 127))]
    symbols, merges = _merged(symbols, (*WORDS, "\u2581the", "<s", "</s"))
    for token in family.special:
        if token[:-1] in symbols:
            merges.append((token[:-1], token[-1]))
    inner = Tokenizer(
        models.BPE(
            vocab={s: i for i, s in enumerate(symbols)},
            merges=merges,
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    inner.decoder = decoders.Sequence(steps)
    inner.add_special_tokens(list(family.special))
    return inner
