"""From a model directory to a model: safetensors only, no code from the directory, dropout off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from burnish.cast import attention
from burnish.cast.chat import Chat
from burnish.cast.keep import keep_memory
from burnish.cast.lora import Lora, add_lora
from burnish.cast.models import adapted_model, is_adapter
from burnish.cast.native import llama
from burnish.cast.native.config import shape_of
from burnish.cast.native.tokenizer import tokenizer_of


@contextmanager
def _readable(what: str, path: Path) -> Iterator[None]:
    """Whatever transformers raises over a directory that is not whole, in one sentence."""
    try:
        yield
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        why = str(error).strip().partition("\n")[0].rstrip(". ")
        raise ValueError(
            f"the {what} in {path} cannot be loaded ({why}); write it again with save_pretrained, or pass another directory"
        ) from error


def load_chat(path: Path) -> Chat:
    """The tokenizer of a model directory; one that could never end a reply is refused."""
    with _readable("tokenizer", path):
        tokenizer: Any = tokenizer_of(path)
        if tokenizer is None:
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(path)
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"the tokenizer in {path} has no eos token, so no reply would ever end; set eos_token in its tokenizer_config.json"
        )
    return Chat(tokenizer)


def load_model(path: Path, outputs: int, device: torch.device, native: bool = True) -> nn.Module:
    """A causal language model, or (outputs > 0) one with `outputs` numbers per token in place of logits.

    Weights are held in fp32 (master weights); on CUDA the forward runs in bf16 autocast.
    native: on a CPU a plain Llama, Qwen2 or Qwen3 is burnish's own (cast/native); False takes transformers' in any case.
    """
    if device.type == "cpu":
        keep_memory()
    shape = shape_of(path) if native and not outputs and device.type == "cpu" else None
    with _readable("model", path):
        model, missing = llama.load(path, shape) if shape is not None else _by_transformers(path, outputs)
    if missing:
        raise ValueError(
            f"the weights in {path} are not whole: {min(missing)} is missing; pass a directory written by save_pretrained"
        )
    _without_dropout(model)
    return model.to(device).eval()


def _by_transformers(path: Path, outputs: int) -> tuple[Any, set[str]]:
    """Any model that transformers knows, and the names of the weights that its directory lacks."""
    from transformers.utils import logging

    logging.set_verbosity_error()  # a fresh head is expected, and bars for files that load in milliseconds are noise
    logging.disable_progress_bar()
    options: dict[str, Any] = {
        "dtype": torch.float32,
        "use_safetensors": True,
        "attn_implementation": attention.register(),
        "output_loading_info": True,  # weights that are missing are refused, not drawn at random
    }
    return _scalar(outputs, path, options) if outputs else _language(path, options)


def _language(path: Path, options: dict[str, Any]) -> tuple[Any, set[str]]:
    """A language model, adapters added into its weights, and the names of the weights that its directory lacks."""
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(adapted_model(path), **options)
    if is_adapter(path):
        merged = add_lora(loaded[0], Lora(), path).merge_and_unload()  # type: ignore[operator]
        return merged.requires_grad_(True), set()
    return loaded[0], set(loaded[1]["missing_keys"])


def _scalar(outputs: int, path: Path, options: dict[str, Any]) -> tuple[Any, set[str]]:
    """A model with numbers in place of logits, and the names of the weights that its directory lacks.

    A fresh head says almost 0 of everything; it is drawn the same every time, so that a run can be repeated.
    """
    from transformers import AutoModelForSequenceClassification

    stored = stored_outputs(path)
    place = adapted_model(path)
    model, info = AutoModelForSequenceClassification.from_pretrained(place, num_labels=stored or outputs, **options)
    if is_adapter(path):
        model.base_model.load_state_dict(_language(path, options)[0].base_model.state_dict())
    if stored:
        return model, set(info["missing_keys"])
    model.score.weight.data.normal_(std=0.01, generator=torch.Generator().manual_seed(0))
    return model, set(info["missing_keys"]) - {"score.weight"}


def _without_dropout(model: nn.Module) -> None:
    """No dropout in any mode, neither as a module nor as the number that attention layers keep."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0  # type: ignore[assignment]


def stored_outputs(path: Path) -> int:
    """How many outputs a saved scalar model has; 0 for a language model."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(adapted_model(path))
    scalar = any("SequenceClassification" in name for name in config.architectures or ())
    return config.num_labels if scalar else 0


def context_length(model: nn.Module) -> int:
    return _context(model.config)


def stored_context(path: Path) -> int:
    """The context length of a model that is not loaded."""
    place = adapted_model(path)
    shape = shape_of(place)
    if shape is not None:
        return _context(shape)
    from transformers import AutoConfig

    return _context(AutoConfig.from_pretrained(place))


def _context(config: Any) -> int:
    return int(getattr(config.get_text_config(), "max_position_embeddings", 1 << 20))
