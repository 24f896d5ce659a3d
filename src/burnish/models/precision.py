"""The number format in which a model is saved: that of the weights that it came from, unless --dtype names another.

Training keeps fp32 master weights, and checkpoints hold them, because a resumed run needs every bit. The saved model
does not: weights that came in bf16 are rounded to bf16 again.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from burnish.models.known_models import adapted_model
from burnish.util.files import read_json

AUTO = "auto"
FORMATS = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
_SHORT = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
DTYPES = (AUTO, *FORMATS, *_SHORT)  # the values of --dtype
_STORED = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}  # as safetensors names them


@dataclass(frozen=True)
class Precision:
    """The number formats of saved weights.

    main    of most of them
    others  of those that the original model keeps in another, by name (the router of some mixtures of experts)
    asked   whether --dtype named the format; adapters, which are small, are saved in fp32 otherwise
    """

    main: torch.dtype = torch.float32
    others: Mapping[str, torch.dtype] = field(default_factory=dict)
    asked: bool = False

    def cast(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights on the CPU in these formats; weights that share memory still do."""
        done: dict[tuple[object, ...], Tensor] = {}
        cast: dict[str, Tensor] = {}
        for name, weight in weights.items():
            key = (weight.data_ptr(), weight.shape, weight.stride(), weight.dtype)
            if key not in done or weight.is_meta or not weight.numel():
                done[key] = self._cast(name, weight.detach())
            cast[name] = done[key]
        return cast

    def _cast(self, name: str, weight: Tensor) -> Tensor:
        if not weight.is_floating_point():
            return weight.cpu()
        wanted = self.others.get(name, self.main)
        if wanted is torch.float16 and float(weight.abs().max() if weight.numel() else 0.0) > torch.finfo(wanted).max:
            raise ValueError(
                f"the weight {name} has become too large for float16, the format of the model (the largest number is "
                "65,504); save it in another: burnish train --resume RUN --dtype bfloat16"
            )
        return weight.to(wanted).cpu()


def precision_of(path: Path, named: str = AUTO) -> Precision:
    """The formats in which a model that starts from the directory `path` is saved. named: the value of --dtype."""
    named = _SHORT.get(named, named)
    if named != AUTO:
        if named not in FORMATS:
            raise ValueError(f"dtype is {named!r}; it takes {', '.join(DTYPES)}")
        return Precision(FORMATS[named], asked=True)
    sizes: Counter[torch.dtype] = Counter()
    kinds: dict[str, torch.dtype] = {}
    for name, kind, count in stored_tensors(path):
        if kind in _STORED:
            kinds[name] = _STORED[kind]
            sizes[kinds[name]] += count
    main = sizes.most_common(1)[0][0] if sizes else torch.float32
    return Precision(main, {name: kind for name, kind in kinds.items() if kind != main})


def for_adapters(precision: Precision) -> Precision:
    """The formats of LoRA adapters that are not merged."""
    return replace(precision, others={}) if precision.asked else Precision()


def stored_tensors(path: Path) -> Iterator[tuple[str, str, int]]:
    """Name, format ("BF16") and number of weights of each tensor of a model directory, from the files' headers."""
    for file in sorted(adapted_model(path).glob("*.safetensors")):
        for name, kind, shape in tensors_in(file):
            yield name, kind, math.prod(shape)


def tensors_in(file: Path) -> Iterator[tuple[str, str, list[int]]]:
    """Name, format and shape of each tensor of a safetensors file, from its header."""
    with file.open("rb") as opened:
        start = opened.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        try:
            header = json.loads(opened.read(min(length, file.stat().st_size)))
        except ValueError:
            return  # loading it says what is wrong
    for name, told in header.items() if isinstance(header, dict) else ():
        if name != "__metadata__" and isinstance(told, dict):
            yield name, str(told.get("dtype")), told.get("shape") or []


def stored_weights(path: Path) -> int:
    """The number of weights of a model that is not loaded."""
    return sum(count for _, _, count in stored_tensors(path))


def write_dtype(file: Path, dtype: torch.dtype) -> None:
    """The format of the weights into a config.json that names another."""
    told = read_json(file)
    if told is None:
        return
    name = str(dtype).removeprefix("torch.")
    for config in (told, *(value for value in told.values() if isinstance(value, dict) and "dtype" in value)):
        config.pop("torch_dtype", None)
        config["dtype"] = name
    file.write_text(json.dumps(told, indent=2) + "\n")
