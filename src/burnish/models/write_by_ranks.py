"""Checkpoints and models that the ranks write together (`--shard full`): no rank ever has all of a model.

Each weight has an owner among the ranks, to which the others send their rows; the owner writes it whole, in a file of
its own. So what is written is one Hugging Face directory with an index, as of any large model, and moments lie beside
it by the same rule. Any number of ranks, with any `--shard`, reads it. Files are safetensors.

Rank 0 makes the folder and says that it is time (`ask`); the others follow (`serve`). What a rank cannot write, such as
on a full disk, is said by rank 0, and the folder is not taken.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from burnish.models.build import Models
from burnish.models.compact_adamw import CompactAdamW
from burnish.models.layer_shards import whole_of
from burnish.models.lora import is_adapter_weight, is_lora
from burnish.models.model import Model
from burnish.models.precision import Precision, for_adapters, tensors_in
from burnish.models.save import save_directory, save_part
from burnish.models.sharded_weights import ShardedWeights

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
OPTIMISER = "optimiser.safetensors"
WRITE = "write"  # what rank 0 asks for
Tensors = dict[str, Tensor]


def divided(models: Models) -> bool:
    """Whether ranks hold parts of the weights, and so write them together."""
    return any(model.shards is not None for model in models)


def ask(models: Models, folder: Path, names: list[str], product: bool) -> None:
    """On rank 0: have all ranks write these models into a folder; each in a directory, or the product into it itself.

    OSError if one of them could not.
    """
    models.ranks.from_first([WRITE, str(folder), names, product])
    _write(models, folder, names, product)


def serve(models: Models, message: object) -> bool:
    """On the other ranks: write along, if that is what rank 0 asked for."""
    if not isinstance(message, list) or message[:1] != [WRITE]:
        return False
    _, folder, names, product = message
    _write(models, Path(folder), names, product)
    return True


def bytes_of(models: Models) -> int:
    """About how many bytes of a checkpoint the ranks write together."""
    moved = sum(12 * p.numel() for m in models.trained() for p in m.optimiser.named.values())
    followers = [m for m in models if m.role.liveness in ("ema", "snapshot")]
    followed = sum(4 * p.numel() for m in followers for p in m.module.parameters())
    return moved + followed if divided(models) else 0


def stored_states(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """The optimiser's tensors in a model's directory, from one file or several, one after the other."""
    for file in sorted(folder.glob(f"{OPTIMISER.partition('.')[0]}*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - not a dict
                yield name, opened.get_tensor(name)


def _write(models: Models, folder: Path, names: list[str], product: bool) -> None:
    """Write this rank's files; then all ranks know whether all could."""
    trouble = ""
    for name in names:
        model = models[name]
        place = folder if product else folder / name
        trouble = _told(models, trouble or _weights(model, place, model.precision if product else None))
        if not product and model.trainer is not None:
            trouble = _told(models, trouble or _moments(model, place))
        if not models.ranks.rank and not is_lora(model.module):
            trouble = trouble or _attempt(lambda place=place: _join(place))  # type: ignore[misc]
        trouble = _told(models, trouble)
    if trouble:
        raise OSError(0, trouble)


def _told(models: Models, own: str) -> str:
    """What went wrong on any rank, as all ranks then know."""
    troubles = [said for said, _ in models.ranks.gather_values(own)]
    rank = next((rank for rank, said in enumerate(troubles) if said), None)
    if rank is None:
        return ""
    what = troubles[rank]
    return what if what.startswith("rank ") else f"rank {rank} could not write it ({what})"


def _attempt(write: Callable[[], None]) -> str:
    """What went wrong while this rank wrote; empty if nothing did. The others must not wait for it."""
    try:
        write()
    except (OSError, SafetensorError, ValueError) as error:
        return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ""


def _weights(model: Model, place: Path, precision: Precision | None) -> str:
    """Send weights to their owners and write this rank's; what went wrong."""
    assert model.shards is not None
    model.shards.release()
    parameters: Mapping[str, Tensor] = model.module.state_dict(keep_vars=True)
    adapted, own = is_lora(model.module), Tensors()
    if adapted:  # adapters are few: rank 0 writes them
        parameters = {name: p for name, p in parameters.items() if is_adapter_weight(name)}
        precision = for_adapters(precision) if precision is not None else None
    owner_of = dict.fromkeys(parameters, 0) if adapted else _owners(model, parameters)
    made: dict[int, Tensor | None] = {}
    for name, p in parameters.items():
        if id(p) not in made:
            made[id(p)] = _whole(model, p, owner_of[name])
        whole = made[id(p)]
        if whole is not None:
            own[name] = whole
    return _attempt(lambda: _save(model, place, own, precision)) if own else ""


def _whole(model: Model, p: Tensor, owner: int) -> Tensor | None:
    """A whole weight on the owner, in fp32 where this rank holds fp32 masters of it."""
    states = model.trainer.states if model.trainer is not None else None
    if isinstance(states, ShardedWeights) and states.masters:
        name = next((name for name, one in states.outside.named.items() if one is p), None)
        if name is not None:
            return states.whole_on(owner, name, states.owned[name])
    return whole_of(p, model.ranks, owner)


def _owners(model: Model, parameters: Mapping[str, Tensor]) -> dict[str, int]:
    """The rank that writes each weight: whole layers, about as many numbers for every rank."""
    layer = {name: (re.findall(r"^.*?layers?\.\d+\.", name) or [name])[0] for name in parameters}
    first: dict[int, str] = {}  # a weight with two names is written once
    sizes: dict[str, int] = {}
    for name, p in parameters.items():
        if first.setdefault(id(p), name) == name:
            sizes[layer[name]] = sizes.get(layer[name], 0) + p.numel()
    rank_of = dict(zip(sizes, model.ranks.owners([*sizes.values()]), strict=True))
    return {name: rank_of[layer[first[id(p)]]] for name, p in parameters.items()}


def _save(model: Model, place: Path, own: Tensors, precision: Precision | None) -> None:
    """Write this rank's weights as a directory beside those of the others (`_join` makes one of them)."""
    for name, weight in own.items():
        if weight.is_floating_point() and not math.isfinite(float(weight.sum())) and not bool(weight.isfinite().all()):
            raise ValueError(f"the weight {name} is not finite")
    if is_lora(model.module):
        place.mkdir(parents=True, exist_ok=True)
        save_directory(model.module, model.chat, place, weights=own, precision=precision)
        return
    at = place / f".rank{model.ranks.rank}"
    at.mkdir(parents=True, exist_ok=True)
    save_part(model.module, model.chat, at, own, precision, not model.ranks.rank)


def _moments(model: Model, place: Path) -> str:
    """Send moments to their owners and write this rank's; what went wrong."""
    optimiser, ranks, own = model.optimiser, model.ranks, Tensors()
    states = optimiser.states
    assert isinstance(states, ShardedWeights)
    state = optimiser.state_dict()
    told = [
        (key, t.ndim, str(t.dtype).removeprefix("torch."), float(t) if not t.ndim else 0.0) for key, t in state.items()
    ]
    flat = isinstance(optimiser.adamw, CompactAdamW)  # AdamW in few bits keeps its moments flat
    owner_of = dict(zip(optimiser.named, ranks.owners([p.numel() for p in optimiser.named.values()]), strict=True))
    for key, ndim, dtype, value in ranks.from_first(told):  # rank 0 has rows of every parameter
        name = key.split("/", 1)[1]
        if not ndim and ranks.rank == owner_of[name]:
            own[key] = torch.tensor(value, dtype=getattr(torch, dtype))
        elif ndim:  # where this rank has no rows of a parameter, it has no moments either
            part = state[key] if key in state else optimiser.moved[name].detach().to(getattr(torch, dtype))
            whole = states.whole_on(owner_of[name], name, part)
            if whole is not None:
                own[key] = whole.view(-1) if flat else whole
    place.mkdir(parents=True, exist_ok=True)
    return _attempt(lambda: save_file(own, place / _numbered(OPTIMISER, ranks.rank + 1, ranks.world)))


def _numbered(name: str, number: int, count: int) -> str:
    stem, _, suffix = name.rpartition(".")
    return f"{stem}-{number:05d}-of-{count:05d}.{suffix}"


def _join(place: Path) -> None:
    """Make one Hugging Face directory of those that the ranks have written below it."""
    parts = sorted(place.glob(".rank*"), key=lambda part: int(part.name.removeprefix(".rank")))
    files = [file for part in parts for file in sorted(part.glob("*.safetensors"))]
    where: dict[str, str] = {}
    size = 0
    for number, file in enumerate(files, 1):
        name = _numbered(WEIGHTS, number, len(files))
        where |= {tensor: name for tensor, _, _ in tensors_in(file)}
        size += file.stat().st_size
        file.rename(place / name)
    for file in parts[0].iterdir():
        if file.name != INDEX:
            file.rename(place / file.name)
    (place / INDEX).write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": where}, indent=2) + "\n")
    for part in parts:
        shutil.rmtree(part)
