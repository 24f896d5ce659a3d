"""From a model to a directory that transformers loads."""

from __future__ import annotations

import json
from inspect import signature
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from burnish.models.chat import Chat
from burnish.models.hub import name_of
from burnish.models.lora import is_lora, merged
from burnish.models.precision import Precision, write_dtype
from burnish.util.files import read_json

SHARD = "5GB"  # a larger model is several files and an index


def save_directory(
    model: nn.Module,
    chat: Chat,
    path: Path,
    *,
    merge: bool = False,
    weights: dict[str, Tensor] | None = None,
    precision: Precision | None = None,
) -> None:
    """The model (or its adapters; merge=True adds them into the weights) and the tokenizer.

    weights    what to save in place of the model's present weights
    precision  the number formats to save them in; by default those that they have
    """
    whole: Any = merged(model) if merge and is_lora(model) else model
    if precision is not None:
        weights = precision.cast(whole.state_dict() if weights is None else weights)
    sharded = {"max_shard_size": SHARD} if "max_shard_size" in signature(whole.save_pretrained).parameters else {}
    whole.save_pretrained(path, state_dict=weights, **sharded)
    if (path / "adapter_config.json").is_file():
        _settle_config(path / "adapter_config.json")
    elif precision is not None:
        write_dtype(path / "config.json", precision.main)
    for name, content in chat.files.items():
        (path / name).write_bytes(content)


def save_part(
    model: nn.Module, chat: Chat, path: Path, weights: dict[str, Tensor], precision: Precision | None, first: bool
) -> None:
    """Some weights of a model in files of their own, as each of several ranks writes some (models/write_by_ranks.py).

    transformers' save_pretrained writes nothing on other ranks than the first, without a word.
    first: whether the configuration and the tokenizer are written beside them
    """
    from huggingface_hub import split_torch_state_dict_into_shards
    from transformers.core_model_loading import revert_weight_conversion
    from transformers.modeling_utils import remove_tied_weights_from_state_dict

    inner: Any = model
    whole = weights if precision is None else precision.cast(weights)
    named = revert_weight_conversion(inner, remove_tied_weights_from_state_dict(whole, inner))
    for file, names in split_torch_state_dict_into_shards(named, max_shard_size=SHARD).filename_to_tensors.items():
        save_file({name: named[name].contiguous() for name in names}, path / file, metadata={"format": "pt"})
    if not first:
        return
    inner.config.architectures = [type(inner).__name__]
    inner.config.dtype = str(next(iter(whole.values())).dtype).removeprefix("torch.")
    inner.config.save_pretrained(path)
    if inner.can_generate():
        inner.generation_config.save_pretrained(path)
    if precision is not None:
        write_dtype(path / "config.json", precision.main)
    for name, content in chat.files.items():
        (path / name).write_bytes(content)


def _settle_config(file: Path) -> None:
    """Adapters of a model of the hub name it as the hub does, so that they can be used on another machine.

    The names of the adapted layers are sorted: peft keeps them in a set, whose order differs between processes.
    """
    told = read_json(file) or {}
    if isinstance(told.get("target_modules"), list):
        told["target_modules"] = sorted(told["target_modules"])
    hub = name_of(Path(told.get("base_model_name_or_path") or ""))
    if hub is not None:
        told |= {"base_model_name_or_path": hub.repository, "revision": hub.revision}
    file.write_text(json.dumps(told, indent=2) + "\n")
