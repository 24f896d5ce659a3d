"""Gradients, moments and the lost halves of bf16 weights, divided among the ranks of a run (`--shard states`).

Every rank keeps the compute copy of the weights whole, so kernels, sampler and --exact read it as ever. Of each trained
parameter, flattened, rank r owns one run of consecutive numbers:

    width = ceil(numbers / ranks), rounded up to a block of the 8-bit moments;   rank r owns [r width, (r + 1) width)

A gradient leaves a rank while the backward pass goes on: as soon as a bucket of parameters has its gradients, they are
summed over the ranks (reduce-scatter), each rank adds its run in fp32 to what it has, and whole gradients are freed.
AdamW moves the runs, and the ranks send each other the new weights (all-gather). This is stage 2 of ZeRO (arXiv
1910.02054) with the fp32 master weights divided, too: the parameters of the module are then the bf16 compute copy.
Bytes a weight at R ranks: 2 + (4 + 4 + 8) / R; with --master-weights split 2 + (2 + 4 + 8) / R.

The exchanges are collectives: each rank makes them in the same order, so buckets go in a fixed order, a parameter
without a gradient counts as zero, and ranks with fewer passes than others pass zeros (`finish`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn

from burnish.models.ranks import Ranks, exchanged

ALIGN = 256  # numbers: a run begins where a block of the 8-bit moments begins (models/adamw8bit.py)
BUCKET = 1 << 25  # numbers whose gradients are summed at once: 128 MiB of fp32
IN_FLIGHT = 2  # buckets that NCCL may work on while the backward pass goes on

REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor  # before torch 2.13
ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

Bucket = list[nn.Parameter]


def width_of(numbers: int, world: int) -> int:
    """How many numbers of a parameter a rank owns at most."""
    return math.ceil(numbers / world / ALIGN) * ALIGN


def run_of(numbers: int, ranks: Ranks) -> slice:
    """The numbers of a flattened parameter that this rank owns; none where others own all."""
    width = width_of(numbers, ranks.world)
    return slice(min(numbers, ranks.rank * width), min(numbers, (ranks.rank + 1) * width))


@dataclass
class _Exchange:
    """A reduce-scatter under way. whole: kept until it has ended."""

    bucket: Bucket
    whole: Tensor
    own: Tensor
    work: dist.Work | None


class ShardedStates:
    """The runs of one model's trained parameters that this rank owns.

    owned: they, as parameters of the optimiser: views of the whole weights, or fp32 master weights of them
    whole: the master weights of all ranks by name, while a checkpoint is collected (models/shards.py)
    """

    def __init__(self, named: Mapping[str, nn.Parameter], ranks: Ranks) -> None:
        self.named, self.ranks = named, ranks
        self.owned: dict[str, nn.Parameter] = {}
        self.whole: dict[str, Tensor] = {}
        self.masters = False
        self._by_id: dict[int, nn.Parameter] = {}
        self._buckets: list[Bucket] = []
        self._ready: dict[int, Tensor] = {}
        self._under_way: list[_Exchange] = []
        self._next = 0

    def begin(self) -> None:
        """Take the runs of the parameters where these are now: loading and joining weights moves them."""
        if self.owned and (self.masters or all(self._is_view(name) for name in self.named)):
            return
        assert not any(p.grad is not None for p in self.owned.values()), "weights moved between gradient and step"
        before = self.owned
        self.owned = {}
        for name, p in self.named.items():
            run = nn.Parameter(p.detach().view(-1)[run_of(p.numel(), self.ranks)])
            if p.dtype == torch.bfloat16:
                run.grad_dtype = torch.float32
            if name in before:  # the optimiser knows it by its identity
                before[name].data = run.data
                run = before[name]
            self.owned[name] = run
        self._arrange()

    @torch.no_grad()
    def keep_masters(self) -> None:
        """Take fp32 runs of their own, and hold the whole weights in bf16 from now on."""
        self.masters = True
        for name, p in self.named.items():
            self.owned[name] = nn.Parameter(p.detach().view(-1)[run_of(p.numel(), self.ranks)].float().clone())
            p.data = p.data.to(torch.bfloat16)
            p.grad_dtype = torch.float32
        self._arrange()

    @torch.no_grad()
    def adopt(self) -> None:
        """Something else than the optimiser has changed the whole weights: the masters follow."""
        if self.masters:
            for name, p in self.named.items():
                self.owned[name].copy_(p.view(-1)[run_of(p.numel(), self.ranks)])

    def _arrange(self) -> None:
        self._by_id = {id(p): self.owned[name] for name, p in self.named.items()}
        self._buckets = list(_buckets([*self.named.values()][::-1], self.ranks.world))

    def _is_view(self, name: str) -> bool:
        run, p = self.owned.get(name), self.named[name]
        if run is None or run.dtype != p.dtype:
            return False
        start = run_of(p.numel(), self.ranks).start
        return not len(run) or run.data_ptr() == p.data_ptr() + start * p.element_size()

    def deliver(self, p: nn.Parameter, grad: Tensor) -> None:
        """The whole gradient of a parameter in this backward pass."""
        assert id(p) not in self._ready, "a parameter had two gradients in one backward pass"
        self._ready[id(p)] = grad
        while self._next < len(self._buckets) and all(id(one) in self._ready for one in self._buckets[self._next]):
            self._sum(self._buckets[self._next])

    def finish(self) -> None:
        """End a backward pass: sum what is left. Without any gradient before it, a pass of zeros."""
        while self._next < len(self._buckets):
            self._sum(self._buckets[self._next])
        while self._under_way:
            self._add(self._under_way.pop(0))
        assert not self._ready, "a gradient came after its bucket had been summed"
        self._next = 0

    def forget(self) -> None:
        """Drop what an attempt at a backward pass has left."""
        self._ready.clear()
        self._under_way.clear()
        self._next = 0

    def _sum(self, bucket: Bucket) -> None:
        """Reduce-scatter the gradients of a bucket."""
        self._next += 1
        widths = [width_of(p.numel(), self.ranks.world) for p in bucket]
        dtype = torch.float32 if bucket[0].dtype == torch.bfloat16 else bucket[0].dtype
        whole = torch.zeros(self.ranks.world, sum(widths), dtype=dtype, device=bucket[0].device)
        column = 0
        for p, width in zip(bucket, widths, strict=True):
            grad = self._ready.pop(id(p), None)
            if grad is not None:
                _spread(grad.detach().reshape(-1), whole[:, column : column + width])
            column += width
        own = torch.empty_like(whole[0]) if self.ranks.connected else whole[0]
        work = None
        if self.ranks.connected:
            work = exchanged(partial(REDUCE_SCATTER, own, whole.view(-1), async_op=True), own.is_cuda)
        self._under_way.append(_Exchange(bucket, whole, own, work))
        while len(self._under_way) > (IN_FLIGHT if own.is_cuda else 0):
            self._add(self._under_way.pop(0))

    @torch.no_grad()
    def _add(self, exchange: _Exchange) -> None:
        """Add the sums of this rank's runs to its gradients."""
        if exchange.work is not None:
            exchange.work.wait()
        column = 0
        for p in exchange.bucket:
            run = self._by_id[id(p)]
            part = exchange.own[column : column + len(run)]
            column += width_of(p.numel(), self.ranks.world)
            if run.grad is None:
                run.grad = part.clone()
            else:
                run.grad.add_(part)

    @torch.no_grad()
    def publish(self) -> None:
        """All-gather: every rank gets the runs that the others have moved."""
        if not self.ranks.connected:
            for name, p in self.named.items() if self.masters else ():
                p.view(-1).copy_(self.owned[name])
            return
        for bucket in self._buckets:
            widths = [width_of(p.numel(), self.ranks.world) for p in bucket]
            whole = torch.zeros(self.ranks.world, sum(widths), dtype=bucket[0].dtype, device=bucket[0].device)
            own, column = whole[self.ranks.rank].clone(), 0
            for p, width in zip(bucket, widths, strict=True):
                run = self._by_id[id(p)]
                own[column : column + len(run)] = run
                column += width
            work = exchanged(partial(ALL_GATHER, whole.view(-1), own, async_op=True), own.is_cuda)
            if work is not None:
                work.wait()
            column = 0
            for p, width in zip(bucket, widths, strict=True):
                p.view(-1).copy_(whole[:, column : column + width].reshape(-1)[: p.numel()])
                column += width

    def norm(self) -> Tensor:
        """The norm of the whole gradient: every rank has the sum of squares of its runs."""
        grads = [run.grad for run in self.owned.values() if run.grad is not None and len(run)]
        if grads:
            norm = torch.nn.utils.get_total_norm(grads)
        else:
            norm = torch.zeros((), device=next(iter(self.named.values())).device)
        if not self.ranks.connected:
            return norm
        squares = norm.double().square().reshape(1)
        work = exchanged(partial(dist.all_reduce, squares, async_op=True), squares.is_cuda)
        if work is not None:
            work.wait()
        return squares[0].sqrt().to(norm.dtype)

    def own_part(self, name: str, whole: Tensor) -> Tensor:
        """What this rank holds of a whole parameter's state: its run, or the scales of the run's blocks."""
        numbers = self.named[name].numel()
        run = run_of(numbers, self.ranks)
        if whole.ndim == 0:
            return whole
        if whole.numel() == numbers:
            return whole.reshape(-1)[run]
        return whole[run.start // ALIGN : math.ceil(run.stop / ALIGN)]


def whole_states(named: Mapping[str, nn.Parameter], parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The states of whole parameters from what each rank holds: as one process without sharding would have them."""
    made: dict[str, Tensor] = {}
    for key in dict.fromkeys(key for part in parts for key in part):
        kind, name = key.split("/", 1)
        held = [part[key] for part in parts if key in part]
        made[key] = held[0] if held[0].ndim == 0 else torch.cat(held)
        if kind.startswith("exp_avg"):  # torch's AdamW keeps moments in the shape of the parameter
            made[key] = made[key].view(named[name].shape)
    return made


def whole_masters(named: Mapping[str, nn.Parameter], parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The master weights of whole parameters from the runs of all ranks."""
    return {name: torch.cat([part[f"master/{name}"] for part in parts]).view(p.shape) for name, p in named.items()}


def _spread(flat: Tensor, rows: Tensor) -> None:
    """Copy numbers into the rows of the ranks that own them."""
    full, left = divmod(len(flat), rows.shape[1])
    rows[:full].copy_(flat[: len(flat) - left].view(full, rows.shape[1]))
    if left:
        rows[full, :left].copy_(flat[len(flat) - left :])


def _buckets(parameters: Sequence[nn.Parameter], world: int) -> Iterator[Bucket]:
    """Consecutive parameters of one number format, at most BUCKET numbers together (or a single one)."""
    bucket: Bucket = []
    for p in parameters:
        size = sum(width_of(one.numel(), world) for one in [*bucket, p]) * world
        if bucket and (size > BUCKET or p.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(p)
    if bucket:
        yield bucket
