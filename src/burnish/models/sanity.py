"""Models that cannot work, refused when they are loaded: numbers of config.json that make no sense, weights that are
NaN or infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from torch import nn

from burnish.models.drawing import draws_pictures
from burnish.models.layer_shards import held
from burnish.util.files import read_json

SIZES = {  # whole numbers from 1 to this one; what is larger is a mistake, and would take for ever to build
    "vocab_size": 10**8,
    "hidden_size": 10**6,
    "intermediate_size": 10**7,
    "num_hidden_layers": 10**4,
    "num_attention_heads": 10**5,
    "num_key_value_heads": 10**5,
    "head_dim": 10**5,
    "max_position_embeddings": 10**10,
}
# Encoders that transformers also gives a head for the next token: each token sees those after it, unless config.json
# says is_decoder (XLM: causal).
# fmt: off
ENCODERS = frozenset((
    "bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie", "megatron-bert",
    "reformer", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "xlm-roberta",
    "xlm-roberta-xl", "xmod",
))
# fmt: on
RANGES = {  # from, to
    "rms_norm_eps": (0.0, 1.0),
    "layer_norm_eps": (0.0, 1.0),
    "layer_norm_epsilon": (0.0, 1.0),
    "norm_epsilon": (0.0, 1.0),
    "rope_theta": (1e-6, 1e18),
}


def require_sane_config(path: Path) -> None:
    """Raise ValueError, in one sentence, for the first number of a directory's config.json that no model can have."""
    try:
        numbers = list(_numbers(read_json(path / "config.json") or {}))
    except RecursionError:
        raise ValueError(f"{path / 'config.json'} is nested too deeply; write it again with save_pretrained") from None
    for name, value in numbers:
        key = name.rpartition(".")[2]
        wrong = ""
        if isinstance(value, float) and not math.isfinite(value):
            wrong = "it must be a finite number"
        elif key in SIZES and not (1 <= value <= SIZES[key] and value == int(value)):
            wrong = f"it must be a whole number from 1 to {SIZES[key]}"
        elif key in RANGES and not RANGES[key][0] <= value <= RANGES[key][1]:
            wrong = f"it must be from {RANGES[key][0]:g} to {RANGES[key][1]:g}"
        if wrong:
            shown = str(value) if len(str(value)) < 40 else f"{str(value)[:40]}..."
            raise ValueError(f"{name} is {shown} in {path / 'config.json'}; {wrong}")
    by_name = dict(numbers)
    heads, shared = by_name.get("num_attention_heads"), by_name.get("num_key_value_heads")
    if heads and shared and heads % shared:
        raise ValueError(
            f"num_attention_heads is {heads} in {path / 'config.json'}; it must be a multiple of num_key_value_heads, "
            f"{shared}"
        )


def require_causal(path: Path) -> None:
    """Raise ValueError, in one sentence, for a model whose tokens see those after them: it cannot write."""
    config = read_json(path / "config.json") or {}
    kind = config.get("model_type")
    key = "causal" if kind == "xlm" else "is_decoder"
    if (kind == "xlm" or kind in ENCODERS) and not config.get(key):
        raise ValueError(
            f"the model in {path} is an encoder ({kind}): its tokens see those after them, so it can be trained to "
            f"score, but not to write; pass a causal language model (a {kind} that was pre-trained as one has {key}: "
            "true in its config.json)"
        )


def require_finite_weights(model: nn.Module, path: Path) -> None:
    """Raise ValueError, in one sentence, for the first weight that is NaN or infinite.

    A NaN or an infinity survives a sum, so one sum a tensor is the whole check; only a sum that overflowed is looked at
    again.
    """
    for name, weight in model.named_parameters():
        if not weight.is_floating_point() or weight.is_meta:
            continue
        own = held(weight.detach())
        if not math.isfinite(float(own.sum())) and not bool(own.isfinite().all()):
            raise ValueError(
                f"the weight {name} in {path} is not finite (NaN or infinity); a model cannot compute with it, so "
                "pass another directory"
            )


def _numbers(value: object, name: str = "") -> Iterator[tuple[str, int | float]]:
    """Every number below a JSON value, with the way to it."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _numbers(item, f"{name}[{i}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield name, value


def hides_tokens(path: Path) -> bool:
    """Whether the model in a directory is a masked language model, which fills in hidden tokens."""
    told = (read_json(path / "config.json") or {}).get("architectures")
    return isinstance(told, list) and any(str(name).endswith("ForMaskedLM") for name in told)


def require_scorer(path: Path) -> None:
    """Refuse a masked language model, and one that draws, as a critic or a reward model."""
    if draws_pictures(path) is not None:
        raise ValueError(
            f"the model in {path} draws pictures, and cannot be a critic or a reward model; use a method without a "
            "critic, such as flow_grpo"
        )
    if hides_tokens(path):
        raise ValueError(
            f"the model in {path} fills in hidden tokens, and cannot be a critic or a reward model; use a method "
            "without a critic, such as grpo, or pass --reward-model another model"
        )
