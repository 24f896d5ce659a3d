"""The weights of a model's layers, divided among the ranks of a run (`--shard full`) by FSDP2 of torch.

A layer is a unit of FSDP2 (`fully_shard`): of each of its weights rank r holds a run of rows, as a DTensor. Before the
layer computes, the ranks send each other their rows (all-gather); afterwards the whole weights are freed, and in the
backward pass gradients are summed over the ranks (reduce-scatter), each keeping its rows. What is outside the layers
(embeddings, final norm, head) stays whole on every rank: the head and the embeddings are read outside of any forward.

With `--shard-ranks S` groups of S ranks each hold all layers between them (HSDP: a mesh of copies x parts): weights are
gathered within a group, on its machine's fast links; gradients are summed within it, and then over the groups.

FSDP2 takes means over the ranks; burnish's losses are sums that one place has divided already, so means are turned off.
Weights are gathered by hooks of a layer's forward, so a layer must be called, not read; for sampling all of them are
gathered for a while (`gather`), where they fit. Passes are made in turns (models/turns.py), as exchanges need all
ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from burnish.forward.module import decoder
from burnish.models.ranks import Ranks
from burnish.models.turns import Turns

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import FSDPModule

READ, GATHER, LEARN, BACK = range(4)  # kinds of passes, in the order in which their turns come (models/turns.py)
ROOM = 0.6  # of a GPU's free memory: what gathered weights may take; the KV cache needs the rest


def held(weight: Tensor) -> Tensor:
    """What this rank holds of a weight: all of it, unless the ranks divide it."""
    loaded = sys.modules.get("torch.distributed.tensor")  # an import of seconds, which a run without ranks does not pay
    if loaded is None or not isinstance(weight, loaded.DTensor):
        return weight
    own: Tensor = weight.to_local()
    return own


def is_divided(weight: Tensor) -> bool:
    """Whether the ranks divide a weight."""
    return held(weight) is not weight


def rows_of(rows: int, world: int) -> list[slice]:
    """The rows of a divided weight that each rank holds, as torch.chunk cuts them."""
    width = -(-rows // world)
    return [slice(min(rows, r * width), min(rows, (r + 1) * width)) for r in range(world)]


def layers_of(module: nn.Module) -> nn.ModuleList:
    """The layers of a model's decoder; ValueError for a model that keeps them otherwise."""
    inner = decoder(module)
    count = inner.config.num_hidden_layers
    stack = next((m for m in inner.modules() if isinstance(m, nn.ModuleList) and len(m) == count), None)
    if stack is None:
        raise ValueError(
            f"--shard full divides a model layer by layer, and a model of type {inner.config.model_type!r} has no list "
            "of layers; use --shard states"
        )
    return stack


def divide_layers(module: nn.Module, mesh: DeviceMesh) -> None:
    """Divide the weights of a model's layers; also of one whose weights are on the meta device, still to be filled."""
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    layers, inner = layers_of(module), decoder(module)
    inside = {id(p) for layer in layers for p in layer.parameters()}
    outside = {p for p in inner.parameters() if id(p) not in inside}
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    policy = half if mesh.device_type == "cuda" else MixedPrecisionPolicy()
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True, mp_policy=policy)
    fully_shard(inner, mesh=mesh, reshard_after_forward=True, ignored_params=outside)
    for unit in module.modules():
        if isinstance(unit, FSDPModule):
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)  # else gloo is asked for a sum with a factor, which it lacks


def mesh_of(ranks: Ranks, device: torch.device, parts: int = 0) -> DeviceMesh:
    """All ranks in a row; or, with `parts`, in rows of so many ranks, each of which holds all layers."""
    from torch.distributed.device_mesh import init_device_mesh

    if parts in (0, ranks.world):
        return init_device_mesh(device.type, (ranks.world,))
    return init_device_mesh(device.type, (ranks.world // parts, parts), mesh_dim_names=("copies", "parts"))


def part_of(mesh: DeviceMesh) -> tuple[int, int]:
    """Which part of a divided weight this rank holds, and how many parts there are."""
    last = mesh.ndim - 1
    return mesh.get_local_rank(last), mesh.size(last)


def mesh_under(weight: Tensor) -> DeviceMesh:
    """The ranks that divide a weight."""
    mesh: DeviceMesh = weight.device_mesh  # type: ignore[attr-defined]  # `is_divided` was asked before
    return mesh


class Divided(Protocol):
    """What has the gradients of a model's weights (models/sharded_weights.py)."""

    def finish(self) -> None:
        """End a backward pass: exchange what is left of its gradients."""


class LayerShards:
    """The divided layers of one model: whose turn it is, and whether its weights are gathered.

    states: of a trained model, what takes its gradients
    """

    def __init__(self, module: nn.Module, ranks: Ranks, turns: Turns) -> None:
        self.module, self.ranks, self.turns = module, ranks, turns
        self.states: Divided | None = None
        self.gathered = False
        self._along = self._passed = False
        self._pending: Tensor | None = None
        self._numbers = {
            READ: turns.register(READ, self._read_along),
            GATHER: turns.register(GATHER, self._gather),
            LEARN: turns.register(LEARN, self._learn_along),
            BACK: turns.register(BACK, self._back_along),
        }
        turns.lent.append(self.release)
        decoder(module).register_forward_pre_hook(self._before, prepend=True)

    @property
    def units(self) -> Iterator[FSDPModule]:
        """The layers, as FSDP2 knows them."""
        from torch.distributed.fsdp import FSDPModule

        return (layer for layer in layers_of(self.module) if isinstance(layer, FSDPModule))

    def gather(self) -> None:
        """Have the whole weights here for a while, if they fit: passes without gradient then exchange nothing."""
        if not self.gathered:
            self.turns.take(self._numbers[GATHER])
            self._gather()

    def release(self) -> None:
        """Free the whole weights. All ranks do so at the same point of the run."""
        if self.gathered:
            self.gathered = False
            for unit in self.units:
                unit.set_reshard_after_forward(True)
                unit.reshard()
            self._start_anew()

    def _start_anew(self) -> None:
        """Have FSDP2 forget the passes before, and free what is whole. It records passes without gradient as well, and
        in a backward pass gathers ahead what came before it in that record: ranks with other numbers of passes would
        then make other exchanges."""
        root: FSDPModule = decoder(self.module)  # type: ignore[assignment]  # `divide_layers` has made it one
        if self._passed:  # before the first pass FSDP2 has no state that could be reset
            root.reset_iter_state()

    def begin_backward(self) -> None:
        """Before a backward pass, which all ranks make together."""
        self.turns.take(self._numbers[BACK])

    def _gather(self) -> None:
        if self.gathered or not self.ranks.lowest(int(self._fits())):
            return
        self.gathered = True
        for unit in self.units:
            unit.set_reshard_after_forward(False)
            unit.unshard()

    def _fits(self) -> bool:
        weights = [p for layer in layers_of(self.module) for p in layer.parameters()]
        if weights[0].device.type != "cuda":
            return True
        free, _ = torch.cuda.mem_get_info(weights[0].device)
        return 2 * sum(p.numel() for p in weights) < ROOM * free

    def _before(self, module: nn.Module, inputs: object) -> None:
        """Before each pass of the decoder: wait for its turn."""
        learns = torch.is_grad_enabled()
        if not self._along and (learns or not self.gathered):
            self.turns.take(self._numbers[LEARN if learns else READ])
            if learns:
                self.turns.make_room()
            self._start_anew()
        self._passed = True

    @contextmanager
    def _aside(self) -> Iterator[None]:
        self._along = True
        try:
            yield
        finally:
            self._along = False

    def _read_along(self) -> None:
        self._start_anew()
        with self._aside(), torch.no_grad():
            self._one_token()

    def _learn_along(self) -> None:
        self.turns.make_room()
        self._start_anew()
        with self._aside(), torch.enable_grad():
            self._pending = self._one_token()

    def _back_along(self) -> None:
        """A backward pass whose gradients are zero."""
        assert self._pending is not None, "another rank makes a backward pass of which this one has no forward pass"
        states, self._pending = self._pending, None
        if states.requires_grad:
            (states * 0).sum().backward()
        if self.states is not None:
            self.states.finish()

    def _one_token(self) -> Tensor:
        device = next(self.module.parameters()).device
        states: Tensor = decoder(self.module)(
            input_ids=torch.zeros(1, 1, dtype=torch.long, device=device), use_cache=False
        ).last_hidden_state
        return states


def whole_of(weight: Tensor, ranks: Ranks, owner: int) -> Tensor | None:
    """A whole weight in the memory of the owner's host; None on the other ranks. All ranks call it together."""
    if not is_divided(weight):
        return weight.detach().cpu() if ranks.rank == owner else None
    flat = collected(held(weight.detach()).reshape(-1), numbers_of(weight), ranks, owner)
    return None if flat is None else flat.view(weight.shape)


def numbers_of(weight: Tensor) -> list[int]:
    """How many numbers of a divided weight each of its parts has."""
    row, (_, parts) = weight.numel() // weight.shape[0], part_of(mesh_under(weight))
    return [(rows.stop - rows.start) * row for rows in rows_of(weight.shape[0], parts)]


def collected(own: Tensor, counts: Sequence[int], ranks: Ranks, owner: int) -> Tensor | None:
    """The flat numbers of the owner's group, one part after the other, on the owner's host; its others send theirs.

    counts: of each part; a group has as many ranks
    """
    own = own.detach().cpu().contiguous()
    first = owner - owner % len(counts)
    if ranks.rank != owner:
        if ranks.rank - ranks.rank % len(counts) == first and counts[ranks.rank - first]:
            ranks.send(own, owner)
        return None
    parts = [own if first + r == owner else torch.empty(count, dtype=own.dtype) for r, count in enumerate(counts)]
    for r, part in enumerate(parts):
        if first + r != owner and len(part):
            ranks.receive(part, first + r)
    return torch.cat(parts)
