"""A model that comes with burnish in eight bits a weight, and is unpacked into BURNISH_HOME when it is first used.

A matrix is kept as int8 with one scale a row, w ~ q s, s = max |w| / 127; other tensors as they are. So `tiny-omni`
takes 3 MB of the package, where two bytes a weight would take 5 compressed. It is unpacked to a directory of bf16
weights like any other, whose name has a hash of what it was made of. It appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from burnish.util.paths import home

PACKED = "packed.safetensors"
SCALE = ".scale"
WEIGHTS = "model.safetensors"


def packed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices as int8 and a scale a row; other tensors as they are."""
    tensors: dict[str, Tensor] = {}
    for name, weight in weights.items():
        if weight.dim() < 2:
            tensors[name] = weight.to(torch.bfloat16)
            continue
        rows = weight.float().flatten(1)
        scale = (rows.abs().amax(1, keepdim=True) / 127).clamp(min=1e-12)
        tensors[name] = (rows / scale).round().to(torch.int8).view(weight.shape)
        tensors[name + SCALE] = scale[:, 0]
    return tensors


def unpacked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights in bf16."""
    weights: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith(SCALE):
            continue
        scale = tensors.get(name + SCALE)
        whole = tensor if scale is None else (tensor.float().flatten(1) * scale[:, None]).view(tensor.shape)
        weights[name] = whole.to(torch.bfloat16)
    return weights


def pack(directory: Path, folder: Path) -> None:
    """A model directory as the files that the package holds."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in directory.iterdir():
        if file.is_file() and file.name != WEIGHTS:
            shutil.copyfile(file, folder / file.name)
    save_file(packed(load_file(directory / WEIGHTS)), folder / PACKED, metadata={"format": "pt"})
    (folder / PACKED).chmod(0o644)


def place_of(folder: Path) -> Path:
    """Where the model of a folder of the package is unpacked to."""
    name = hashlib.sha256((folder / PACKED).read_bytes()).hexdigest()[:8]
    return home() / "models" / f"{folder.name.replace('_', '-')}-{name}"


def unpack(folder: Path) -> Path:
    """The model of a folder of the package as a directory; made now where it is not there yet."""
    target = place_of(folder)
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=target.parent) as made:
        aside = Path(made) / "model"
        aside.mkdir()
        for file in folder.iterdir():
            if file.is_file() and file.name not in (PACKED, "__init__.py"):
                shutil.copyfile(file, aside / file.name)
        save_file(unpacked(load_file(folder / PACKED)), aside / WEIGHTS, metadata={"format": "pt"})
        (aside / WEIGHTS).chmod(0o644)
        try:
            aside.replace(target)
        except OSError:  # another process was faster
            if not (target / "config.json").is_file():
                raise
    return target
