"""From a model to a directory that transformers loads."""

from __future__ import annotations

import json
from inspect import signature
from pathlib import Path
from typing import Any

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
