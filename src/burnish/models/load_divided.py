"""Load a model of which each rank keeps a part (`--shard full`), without any rank ever holding all of it.

The model is made without memory (on the meta device), its layers are divided, and each rank reads its rows of each
weight from the safetensors files. That takes a directory whose tensors are the model's parameters by name. Where they
are named or joined otherwise (adapters, old checkpoints, experts of some mixtures), the caller loads the whole model
and divides it then.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from burnish.models.known_models import is_adapter
from burnish.models.layer_shards import divide_layers, held, layers_of, part_of, rows_of
from burnish.models.precision import tensors_in

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

FRESH = "score.weight"  # what a scoring model's directory may lack: the head is drawn then


def load_divided(
    path: Path, made: nn.Module, device: torch.device, dtype: torch.dtype, mesh: DeviceMesh, fresh_head: bool
) -> bool:
    """Fill a model that was made on the meta device; False, with nothing changed, for a directory that does not fit it.

    fresh_head: whether the directory may lack the head, which is zeros then
    """
    if is_adapter(path):
        return False
    where = _files(path)
    aliases: dict[int, list[str]] = {}  # of a weight that the head shares with the embeddings, all names
    for name, p in made.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(p), []).append(name)
    stored: dict[str, str] = {}  # by the first name of each weight, the name in the files
    shapes = dict(made.named_parameters())
    for names in aliases.values():
        known = next((name for name in names if name in where and where[name][1] == shapes[names[0]].shape), None)
        if known is not None:
            stored[names[0]] = known
        elif not (fresh_head and names[0] == FRESH):
            return False
    if any(True for layer in layers_of(made) for _ in layer.buffers()) or not _buffers_can_be_made(made):
        return False
    divide_layers(made, mesh)
    with _Reader(where) as reader:
        _fill(made, reader, stored, device, dtype, *part_of(mesh))
    _make_buffers(made, device)
    return True


def _files(path: Path) -> dict[str, tuple[Path, torch.Size]]:
    """By the name of each tensor, its file and shape."""
    return {
        name: (file, torch.Size(shape))
        for file in sorted(path.glob("*.safetensors"))
        for name, _, shape in tensors_in(file)
    }


class _Reader:
    """Reads tensors, or rows of them, from open files."""

    def __init__(self, where: Mapping[str, tuple[Path, torch.Size]]) -> None:
        self.where = where
        self._open: dict[Path, Any] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def rows(self, name: str, rows: slice | None = None) -> Tensor:
        """Some rows of a tensor; None: all."""
        file = self.where[name][0]
        if file not in self._open:
            self._open[file] = self._stack.enter_context(safe_open(file, framework="pt"))
        opened = self._open[file]
        part: Tensor = opened.get_tensor(name) if rows is None else opened.get_slice(name)[rows]
        return part


@torch.no_grad()
def _fill(
    made: nn.Module,
    reader: _Reader,
    stored: Mapping[str, str],
    device: torch.device,
    dtype: torch.dtype,
    part: int,
    parts: int,
) -> None:
    """Give every weight its numbers: layers the rows of this rank's part, the rest whole."""
    for layer in layers_of(made):
        layer.to_empty(device=device)
    whole: dict[int, nn.Parameter] = {}
    for name, p in list(made.named_parameters(remove_duplicate=False)):
        if not p.is_meta:
            own = held(p)
            if name in stored and own.numel():
                own.copy_(_finite(reader.rows(stored[name], rows_of(p.shape[0], parts)[part]), name, reader))
            continue
        if id(p) not in whole:
            value = torch.zeros(p.shape, device=device, dtype=dtype)
            if name in stored:
                value = _finite(reader.rows(stored[name]), name, reader).to(device, dtype)
            whole[id(p)] = nn.Parameter(value, p.requires_grad)
        owner, _, last = name.rpartition(".")
        setattr(made.get_submodule(owner), last, whole[id(p)])


def _finite(value: Tensor, name: str, reader: _Reader) -> Tensor:
    """The value; ValueError where a number is NaN or infinite."""
    if not math.isfinite(float(value.float().sum())) and not bool(value.isfinite().all()):
        raise ValueError(
            f"the weight {name} in {reader.where[name][0].parent} is not finite (NaN or infinity); a model cannot "
            "compute with it, so pass another directory"
        )
    return value


def _holders(made: nn.Module) -> Iterator[nn.Module]:
    """The modules with buffers of their own."""
    return (module for module in made.modules() if next(module.buffers(recurse=False), None) is not None)


def _buffers_can_be_made(made: nn.Module) -> bool:
    """Whether all buffers are rotary frequencies, which transformers computes from the configuration."""
    holders = list(_holders(made))
    named = all("original_inv_freq" in dict(module.named_buffers()) for module in holders)
    return named and all("RotaryEmbedding" in type(module).__name__ for module in holders)


def _make_buffers(made: nn.Module, device: torch.device) -> None:
    whole: Any = made
    for module in _holders(made):
        module.to_empty(device=device)
        whole._init_weights(module)
