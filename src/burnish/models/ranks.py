"""Data parallelism: the ranks of a run are processes that execute the same loop on the same data and divide what is
expensive.

    rollout, score          each rank samples and scores its portion of the tasks; all get the groups of all
    model calls elsewhere   each rank computes its portion of the rows; all get all outputs
    learn                   each rank takes its portion of the rows; gradients (all-reduce) and metrics are summed

Everything else is computed by every rank, from the same numbers, so that all decide alike. Sizes are counted over the
whole batch before the first backward pass, so gradients simply add, and their sum does not depend on the number of
ranks. Data travels as JSON and safetensors over gloo; gradients on GPUs over NCCL.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from burnish.core.sharded_pass import decode, encode
from burnish.core.step import Notes
from burnish.core.types import Allowed, Canvas, Chain
from burnish.engine.request import Sample
from burnish.util.failures import LostRankError
from burnish.util.work_units import UNITS

T = TypeVar("T")
MEETING = "BURNISH_RANKS_MEET_AT"  # names a file for the ranks of one machine; their launcher says who is lost
RUN = "run"  # the file in the launcher's folder that says where the run is
TICK = timedelta(seconds=1)  # how often a rank that waits for others looks whether they are lost
VERDICT_SECONDS = 3.0  # how long it may take until it is known who has broken a connection
CUT = (
    "the connection to another rank was lost: its process has ended or cannot be reached, so the run was ended; "
    "continue it from its last checkpoint with burnish train --resume RUN"
)
BUCKET = 1 << 25  # gradients that are added up at once: 128 MiB of fp32


def tell_launcher(run: Path) -> None:
    """Say where the run is to the launcher of the ranks of this machine, if there is one: it may resume the run."""
    if meeting := os.environ.get(MEETING):
        Path(meeting).with_name(RUN).write_text(str(run.absolute()))


@dataclass(frozen=True)
class Ranks:
    """Rank `rank` of `world`. One process is rank 0 of 1, for which all of this does nothing.

    group: the processes that exchange; by default all of the run, for the thread that learns
    """

    rank: int = 0
    world: int = 1
    group: dist.ProcessGroup | None = None
    _working_apart: list[None] = field(default_factory=list, repr=False, compare=False)
    _at_end: list[Callable[[], None]] = field(default_factory=list, repr=False, compare=False)

    @property
    def connected(self) -> bool:
        """Whether there are other processes to talk to."""
        return self.world > 1 and dist.is_initialized()

    @property
    def divides(self) -> bool:
        """Whether work is divided now: not inside work that is a portion already (`apart`)."""
        return self.connected and not self._working_apart

    def for_thread(self) -> Ranks:
        """The same ranks for another thread, with connections of its own: two threads that exchanged over the same
        ones could meet in another order on each rank. All ranks make it at the same time.
        """
        if not self.connected:
            return Ranks(self.rank, self.world)
        with with_others():
            return Ranks(self.rank, self.world, dist.new_group(backend="gloo"))

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Inside, this rank works on its portion: its models answer it alone."""
        self._working_apart.append(None)
        try:
            yield
        finally:
            self._working_apart.pop()
        if not self._working_apart:
            self.portion_done()

    def at_end(self, call: Callable[[], None]) -> None:
        """Have all ranks call this whenever their portions of some work are done."""
        self._at_end.append(call)

    def portion_done(self) -> None:
        """This rank has done its portion, as all ranks do."""
        for call in self._at_end:
            call()

    def lowest(self, number: int) -> int:
        """All-reduce: the lowest of the numbers that the ranks pass."""
        if not self.connected:
            return number
        least = torch.tensor([number])
        _settle(lambda: dist.all_reduce(least, dist.ReduceOp.MIN, self.group, async_op=True))
        return int(least)

    def portion(self, items: Sequence[T], sizes: Sequence[int] | None = None) -> list[T]:
        """Consecutive items: the portions of all ranks, one after the other, are all items in order.

        sizes: of the items, of which each rank gets about as much as every other; by default all have the same
        """
        if self.world == 1:
            return list(items)
        owners = self.owners(sizes if sizes is not None else [1] * len(items))
        return [item for item, rank in zip(items, owners, strict=True) if rank == self.rank]

    def portion_of_groups(self, items: Sequence[T], sizes: Sequence[int], width: int) -> list[T]:
        """The portion of this rank's group: the same for `width` ranks in a row, which divide each item further."""
        return Ranks(self.rank // width, self.world // width).portion(items, sizes)

    def owners(self, sizes: Sequence[int]) -> list[int]:
        """The rank of each of these items: consecutive ones, about as much for every rank."""
        size = np.asarray(sizes, dtype=np.float64)
        middle = np.cumsum(size) - size / 2
        rank = np.minimum(self.world - 1, self.world * middle / max(1.0, size.sum()))
        return [int(owner) for owner in rank]

    def gather(self, data: bytes) -> list[bytes]:
        """All-gather: what every rank passed, in the order of the ranks."""
        if not self.connected:
            return [data]
        sizes = [torch.zeros(1, dtype=torch.long) for _ in range(self.world)]
        _settle(lambda: dist.all_gather(sizes, torch.tensor([len(data)]), self.group, async_op=True))
        longest = max(int(size) for size in sizes)
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        parts = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.world)]
        _settle(lambda: dist.all_gather(parts, padded, self.group, async_op=True))
        return [part[: int(size)].numpy().tobytes() for part, size in zip(parts, sizes, strict=True)]

    def gather_values(self, head: T, tensors: Sequence[Tensor] = ()) -> list[tuple[T, list[Tensor]]]:
        """JSON-able values and tensors of every rank, in the order of the ranks."""
        if not self.connected:
            return [(head, list(tensors))]
        return [decode(data) for data in self.gather(encode(head, tensors))]

    def from_first(self, value: T) -> T:
        """Broadcast: the (JSON-able) value of rank 0, on every rank."""
        if not self.connected:
            return value
        head: T | None = value if not self.rank else None
        first: T = decode(self.gather(encode(head, ()))[0])[0]
        return first

    def require_same(self, what: str, value: object) -> None:
        """Raise RuntimeError on all ranks if one of them has another value."""
        if not self.connected:
            return
        values = [head for head, _ in self.gather_values(value)]
        others = [rank for rank, one in enumerate(values) if one != values[0]]
        if others:
            raise RuntimeError(
                f"{what}: rank {others[0]} has other data than rank 0, so the run cannot go on; something in the run "
                "depends on the process (a reward, an environment or a draw with randomness of its own)"
            )

    def add_up(self, notes: Notes) -> Notes:
        """The metrics of all ranks together."""
        if not self.connected:
            return notes
        total = Notes()
        for state, _ in self.gather_values(notes.state_dict()):
            total.absorb(state)
        return total

    def sum_gradients(self, models: Iterable[nn.Module]) -> None:
        """All-reduce: sum the gradients of all ranks; a parameter without one counts as zero."""
        if not self.connected:
            return
        trained = {id(p): p for model in models for p in model.parameters() if p.requires_grad}
        for p in trained.values():
            if p.grad is None:
                p.grad = p.new_zeros(p.shape, dtype=p.grad_dtype)
        for bucket in _buckets([p.grad for p in trained.values() if p.grad is not None]):
            _at_once(bucket, partial(dist.all_reduce, group=self.group, async_op=True))

    @torch.no_grad()
    def spread(self, tensors: Sequence[Tensor], owners: Sequence[int]) -> None:
        """Broadcast each tensor from the rank that owns it to all others."""
        if not self.connected:
            return
        for owner in range(self.world):
            for bucket in _buckets([t for t, own in zip(tensors, owners, strict=True) if own == owner]):
                _at_once(bucket, partial(dist.broadcast, src=owner, group=self.group, async_op=True))

    def send(self, tensor: Tensor, rank: int) -> None:
        """Send a tensor of the CPU to one rank, which calls `receive`."""
        with with_others():
            dist.send(tensor, rank, self.group)

    def receive(self, tensor: Tensor, rank: int) -> None:
        """Fill a tensor of the CPU with what a rank sends."""
        with with_others():
            dist.recv(tensor, rank, self.group)


class Watch(Protocol):
    """Who knows which ranks are lost (distributed/peers.py). Without one, a broken connection tells."""

    def lost(self, seconds: float = 0.0) -> str:
        """The sentence about a lost rank, within so many seconds; empty if none was lost. The user has been told it."""


_watches: list[Watch] = []


def watch_by(watch: Watch) -> None:
    """Let an exchange with the other ranks end when this watch says that one of them is lost."""
    _watches[:] = [watch]


def here() -> Ranks:
    """The ranks of this process: those of the process group that it has joined (distributed/launch.py)."""
    return Ranks(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Ranks()


def samples_of_all(ranks: Ranks, own: Sequence[Sample]) -> list[Sample]:
    """The samples of all ranks, in order."""
    tensors = [tensor for sample in own for tensor in _tensors_of(sample)]
    samples: list[Sample] = []
    told = [(sample.stopped, sample.allowed is not None, _told_of(sample.canvas)) for sample in own]
    for reasons, parts in ranks.gather_values(told, tensors):
        left = iter(parts)
        samples += [
            Sample(
                next(left),
                next(left),
                why,
                Allowed(next(left), next(left)) if restricted else None,
                _canvas_of(left, whole),
            )
            for why, restricted, whole in reasons
        ]
    return samples


def _told_of(canvas: Canvas | Chain | None) -> int | tuple[object, ...]:
    """What is said of how a sample came about, beside its tensors."""
    if isinstance(canvas, Chain):
        return canvas.levels, canvas.sampler, canvas.noise, canvas.guidance
    return 0 if canvas is None else canvas.block


def _canvas_of(left: Iterator[Tensor], told: int | tuple[Any, ...]) -> Canvas | Chain | None:
    if isinstance(told, tuple | list):
        levels, sampler, noise, guidance = told
        return Chain(next(left), tuple(levels), sampler, noise, guidance)
    return Canvas(next(left), next(left), told) if told else None


def _tensors_of(sample: Sample) -> list[Tensor]:
    allowed = [] if sample.allowed is None else [sample.allowed.ids, sample.allowed.sizes]
    whole = sample.canvas
    if isinstance(whole, Chain):
        return [sample.tokens, sample.logp, *allowed, whole.states]
    return [sample.tokens, sample.logp, *allowed, *([] if whole is None else [whole.tokens, whole.steps])]


def streams_of_all(ranks: Ranks, own: Sequence[dict[str, Tensor]]) -> list[dict[str, Tensor]]:
    """The streams of all ranks' traces, in order."""
    joined: list[dict[str, Tensor]] = []
    tensors = [stream for streams in own for stream in streams.values()]
    for names, parts in ranks.gather_values([list(streams) for streams in own], tensors):
        left = iter(parts)
        joined += [{name: next(left) for name in some} for some in names]
    return joined


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Consecutive tensors of one number format, at most BUCKET numbers together (or a single tensor)."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        full = sum(one.numel() for one in bucket) + tensor.numel() > BUCKET
        if bucket and (full or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def _at_once(tensors: list[Tensor], exchange: Callable[[Tensor], dist.Work | None]) -> None:
    """Exchange several tensors as one, and write what came of it into them."""
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    _settle(lambda: exchange(flat), flat.is_cuda)
    for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))


def exchanged(begin: Callable[[], dist.Work | None], on_gpu: bool) -> dist.Work | None:
    """Begin an exchange. On a GPU it goes on while the caller computes, who waits for it; on a CPU it has ended."""
    if on_gpu:
        with with_others():
            return begin()
    _settle(begin)
    return None


def _settle(begin: Callable[[], dist.Work | None], on_gpu: bool = False) -> None:
    """Do an exchange. While it waits for a rank that is lost, it ends with LostRankError."""
    with with_others():
        work = begin()
        while work is not None and not _waited(work, on_gpu):
            if loss := _lost():
                raise LostRankError(loss, quiet=True)


def _waited(work: dist.Work, on_gpu: bool) -> bool:
    """Wait for TICK, on a GPU (where NCCL waits, and not this thread) without a limit; whether the work is done."""
    if on_gpu:
        work.wait()
        return True
    try:
        with UNITS.waiting():
            work.wait(TICK)
    except RuntimeError:
        if work.is_completed():
            raise
        return False
    return True


@contextmanager
def with_others() -> Iterator[None]:
    """Inside, the error of a broken connection is a LostRankError: gloo's own says nothing to a user."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        loss = _lost(VERDICT_SECONDS)
        raise LostRankError(loss or CUT, quiet=bool(loss or os.environ.get(MEETING))) from None


def _lost(seconds: float = 0.0) -> str:
    return _watches[0].lost(seconds) if _watches else ""
