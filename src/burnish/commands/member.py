"""A model to ask, outside any run: for `eval` and `chat`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from burnish.cast.stage import Cast
    from burnish.step import Settings


def alone(model: str, settings: Settings, device: str) -> Cast:
    """A cast of one frozen policy. A model that scores replies and cannot write any is refused.

    A directory of LoRA adapters is read as the model they adapt, with the adapters merged in.
    """
    from burnish.cast.lora import Lora, add_lora, merged
    from burnish.cast.models import resolve
    from burnish.cast.roles import Role
    from burnish.cast.stage import build

    adapters = Path(model).expanduser()
    adapted = _json(adapters / "adapter_config.json").get("base_model_name_or_path")
    path = resolve(adapted or model)
    if any("SequenceClassification" in name for name in _json(path / "config.json").get("architectures") or ()):
        raise ValueError(
            f"{model} is a reward model: it scores replies but writes none; "
            f"use it as burnish train grpo --reward-model {model}"
        )
    cast = build({"policy": Role("frozen", "base")}, path, settings, device=device)
    if adapted:
        policy = cast["policy"]
        cast.members["policy"] = replace(policy, model=merged(add_lora(policy.model, Lora(), adapters)))
    return cast


def _json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text()) if file.is_file() else {}
