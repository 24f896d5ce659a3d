"""The work itself, written down once for all sides: models, prompts, lengths; and what the machine must need at least.

Models of the GPU benchmarks have real shapes and random weights: speed does not depend on what a model knows. Their
tokenizer has one word for every id ("t0 t1 t2 ..."), so that text and tokens correspond one to one and every side reads
prompts of exactly the asked length. (For the Qwen2 shape transformers insists on its own tokenizer class, which reads
the words otherwise: the parts of that shape are given token ids, never text.)
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from burnish.core.randomness import rng

SHAPES: dict[str, dict[str, Any]] = {
    "smollm2-135m": {
        "model_type": "llama",
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
        "tie_word_embeddings": True,
    },
    "qwen2.5-1.5b": {
        "model_type": "qwen2",
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        "tie_word_embeddings": True,
    },
    "qwen2.5-3b": {
        "model_type": "qwen2",
        "vocab_size": 151936,
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        "tie_word_embeddings": True,
    },
    "qwen3-8b": {
        "model_type": "qwen3",
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        "tie_word_embeddings": False,
    },
    "tiny": {
        "model_type": "llama",
        "vocab_size": 438,
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
    },
    "llama-33m": {
        "model_type": "llama",
        "vocab_size": 8192,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 8,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    },
    "quick": {
        "model_type": "llama",
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
    },
}
END, PAD = 0, 1  # the ids of the tokens that end a reply and fill a row
ROLES = {"user": 2, "assistant": 3, "tool": 4}  # the ids of the words that begin a message, where there is a template
TEMPLATE = """
{%- for message in messages -%}
{{- "<" + message.role + "> " -}}
{{- message.content or "" -}}
{%- for call in message.tool_calls or [] %} {{ call.function.name }} {{ call.function.arguments | tojson }}{% endfor -%}
{{- " <end> " -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<assistant> " -}}{%- endif -%}
"""


def model_directory(shape: str, place: Path, *, chat: bool = False) -> Path:
    """A model of this shape with random weights and its tokenizer, made once. chat: with a template of messages and
    calls of tools.
    """
    path = place / (f"{shape}-chat" if chat else shape)
    if (path / "done").is_file():
        return path
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    given = dict(SHAPES[shape])
    config = AutoConfig.for_model(
        given.pop("model_type"), **given, eos_token_id=END, pad_token_id=PAD, bos_token_id=None
    )
    config.dtype = "bfloat16"
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    path.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(path)
    del model
    if device == "cuda":
        torch.cuda.empty_cache()  # this process only writes the model down; the sides need the memory
    _save_tokenizer(path, given["vocab_size"], chat)
    (path / "done").write_text("")
    return path


def _save_tokenizer(path: Path, vocabulary: int, chat: bool) -> None:
    """One word for every id; with a template, three of them begin messages."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<end>": END, "<pad>": PAD} | {f"t{i}": i for i in range(2, vocabulary)}
    if chat:
        taken = {f"t{i}" for i in ROLES.values()}
        words = {f"<{role}>": i for role, i in ROLES.items()} | {w: i for w, i in words.items() if w not in taken}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t5"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>", padding_side="left"
    )
    if chat:
        fast.chat_template = TEMPLATE
    fast.save_pretrained(path)


def prompts(number: int, length: int, vocabulary: int, what: str) -> list[list[int]]:
    """Prompts of one length, all different."""
    dice = rng("benchmark", what, number, length)
    return [[dice.randrange(2, vocabulary) for _ in range(length)] for _ in range(number)]


def text(ids: list[int]) -> str:
    """What the one-word-per-id tokenizer reads as these ids."""
    return " ".join(f"t{i}" for i in ids)


def uneven(number: int, longest: int, mean: float = 0.3) -> list[int]:
    """Lengths from a geometric distribution whose mean is `mean` of the longest, cut there: what replies look like."""
    dice = rng("benchmark", "uneven", number, longest)
    stop = _chance(mean * longest, longest)
    return [min(longest, 1 + int(math.log(1.0 - dice.random()) / math.log(1.0 - stop))) for _ in range(number)]


def _chance(mean: float, longest: int) -> float:
    """The chance of stopping at each token for which the cut geometric distribution has this mean: (1-(1-p)^L)/p =
    mean.
    """
    low, high = 1e-9, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 - (1 - middle) ** longest) / middle > mean else (low, middle)
    return low


def pool(rows: int, longest: int, page: int = 64) -> dict[str, int]:
    """transformers' continuous batching, its pool sized to the work: by default it takes all free memory, and is
    slower.
    """
    from transformers import ContinuousBatchingConfig

    wanted = {
        "page_size": page,  # block_size in older releases
        "block_size": page,
        "num_blocks": rows * -(-longest // page) + 8,
        "max_requests_per_batch": rows,
        "max_batch_tokens": max(rows, 4096),
    }
    known = {field.name for field in fields(ContinuousBatchingConfig)}
    if "page_size" in known:
        known.discard("block_size")
    return {name: value for name, value in wanted.items() if name in known}


def sweep_points(
    axes: dict[str, list[tuple[int, tuple[int, int, int, int]]]], vocabulary: int, costs: Costs, top: Ceiling | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """For every axis its points (x, (rows, group, prompt, new)): the work of each, and what readers
    want to know of it.
    """
    work, facts = [], []
    for axis, points in axes.items():
        for x, (rows, group, prompt, new) in points:
            asked, lengths = prompts(rows // group, prompt, vocabulary, "sweep"), [new] * rows
            floor = costs.sampling_floor([prompt] * len(asked), lengths, group, top) if top else None
            work.append({"prompts": asked, "group": group, "lengths": lengths})
            facts.append({"axis": axis, "x": x, "tokens": rows * new, "floor_seconds": floor})
    return work, facts


# ------------------------------------------------------------------------------------------------- what it must cost


@dataclass(frozen=True)
class Ceiling:
    """What a machine can do at most: bytes and operations a second, and how many bytes a number has there."""

    bandwidth: float
    flops: float
    width: int = 2


@dataclass(frozen=True)
class Costs:
    """What one model costs in arithmetic and memory traffic, from its shape."""

    weights: int  # all weights, tied embeddings counted once
    kv: int  # numbers in the keys and values of one token, all layers
    attention: int  # multiply-adds of attention for one pair of tokens, all layers

    @classmethod
    def of(cls, directory: Path) -> Costs:
        config = json.loads((directory / "config.json").read_text())
        hidden, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
        width = config.get("head_dim") or hidden // heads
        kv = config["num_key_value_heads"] * width
        layer = 2 * hidden * heads * width + 2 * hidden * kv + 3 * hidden * config["intermediate_size"] + 2 * hidden
        if config["model_type"] == "qwen2":
            layer += heads * width + 2 * kv  # the biases of queries, keys and values
        if config["model_type"] == "qwen3":
            layer += 2 * width  # the norms of queries and keys
        tables = 1 if config.get("tie_word_embeddings", True) else 2
        weights = layers * layer + tables * config["vocab_size"] * hidden + hidden
        return cls(weights, layers * 2 * kv, layers * 2 * heads * width)

    def sampling_floor(self, prompts: list[int], lengths: list[int], group: int, top: Ceiling) -> float:
        """The least seconds for sampling: prompts are read once a group, then every step reads all weights and the keys
        and values of the living rows (those of a shared prompt once), and multiplies them; the slower of both counts.
        """
        ends = [prompts[row // group] for row in range(len(lengths))]
        total = 2.0 * self.weights * sum(prompts) / top.flops
        for step in range(1, max(lengths)):
            living = [row for row, length in enumerate(lengths) if length > step]
            shared = sum(prompts[g] for g in {row // group for row in living})
            read = self.weights + (shared + len(living) * step) * self.kv
            pairs = sum(ends[row] for row in living) + len(living) * step
            work = 2.0 * (self.weights * len(living) + self.attention * pairs)
            total += max(read * top.width / top.bandwidth, work / top.flops)
        return total

    def training_flops(self, prompts: list[int], lengths: list[int], group: int) -> float:
        """Forward and backward, a shared prompt counted once: six operations for every weight and token, and for every
        pair of tokens of which one sees the other."""
        tokens = sum(prompts) + sum(lengths)
        pairs = sum(n * n / 2 for n in prompts)
        pairs += sum(n * prompts[row // group] + n * n / 2 for row, n in enumerate(lengths))
        return 6.0 * (self.weights * tokens + self.attention * pairs)
