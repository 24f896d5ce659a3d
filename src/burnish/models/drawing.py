"""Directories of models that draw (models/flow_model.py)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.forward.denoise import KIND
from burnish.util.files import read_json

if TYPE_CHECKING:
    from burnish.forward.module import TransformersModel


def draws_pictures(path: Path) -> tuple[int, int] | None:
    """Height and width of what the model in a directory draws, if it is one that removes noise. transformers then knows
    its configuration.
    """
    told = read_json(path / "config.json") or {}
    side = told.get("side")
    if told.get("model_type") != KIND or not isinstance(side, int):
        return None
    importlib.import_module("burnish.models.flow_model")
    return side, side


def load_drawing(path: Path, options: dict[str, Any]) -> tuple[TransformersModel, set[str]]:
    """The model, and the names of the weights that its directory lacks."""
    from burnish.models.flow_model import FlowModel

    loaded: Any = FlowModel.from_pretrained(path, trust_remote_code=False, **options)
    return loaded[0], set(loaded[1]["missing_keys"])
