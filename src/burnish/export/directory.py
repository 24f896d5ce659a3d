"""A model as a directory that transformers or peft loads: as it was trained, merged, or its adapters."""

from __future__ import annotations

import shutil
from fnmatch import fnmatch
from pathlib import Path

import torch

from burnish.export.found import Found
from burnish.export.licence import LICENCE_FILES
from burnish.models.load import load_chat, load_model, stored_outputs
from burnish.models.lora import Lora, add_lora
from burnish.models.precision import AUTO, precision_of
from burnish.models.save import save_directory

KEPT = ("*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
WITHOUT = ("manifest.json", "optimi[sz]er*.safetensors", "pretraining.json")  # ranks write optimiser-00001-of-00008


def write_as_trained(model: Found, out: Path, dtype: str = AUTO) -> None:
    """The directory as it is: whole weights, or adapters. dtype: another number format of whole weights."""
    if dtype != AUTO:
        if model.adapter:
            raise ValueError("--dtype is the format of whole weights, and these are adapters; add --to merged")
        return _rewrite(model, out, dtype)
    for pattern in (*KEPT, *LICENCE_FILES):
        for file in sorted(model.path.glob(pattern)):
            if file.is_file() and not any(fnmatch(file.name, left_out) for left_out in WITHOUT):
                shutil.copyfile(file, out / file.name)  # the content alone: the mode follows the umask
    return None


def write_merged(model: Found, out: Path, dtype: str = AUTO) -> None:
    """The adapters added into the weights of their base model."""
    if not model.adapter:
        raise ValueError(f"{model.path} holds whole weights, so there are no adapters to merge; use --to hf")
    _rewrite(model, out, dtype)


def write_adapter(model: Found, out: Path) -> None:
    """The adapters alone, for peft."""
    if not model.adapter:
        raise ValueError(
            f"{model.path} holds whole weights, not LoRA adapters: the run had no --lora, or it had --merge; "
            "use --to hf"
        )
    write_as_trained(model, out)


def _rewrite(model: Found, out: Path, dtype: str) -> None:
    """Load the model (adapters are added into its weights) and save it whole."""
    host, adapts = torch.device("cpu"), model.adapter and not model.scores
    loaded = load_model(model.base if adapts else model.path, stored_outputs(model.path), host, False)
    if adapts:
        loaded = add_lora(loaded, Lora(), model.path)
    with torch.no_grad():
        chat, precision = load_chat(model.path), precision_of(model.path, dtype)
        save_directory(loaded, chat, out, merge=adapts, precision=precision)
    for pattern in LICENCE_FILES:
        for file in model.base.glob(pattern):
            if not (out / file.name).exists():
                shutil.copyfile(file, out / file.name)
