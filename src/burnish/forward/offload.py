"""Activations on the host: what a backward pass will read is copied there while the GPU computes, and back in time.

Inside `offloaded` every large tensor that autograd saves, except weights, is copied to pinned memory by a stream of its
own and freed on the GPU. The backward pass reads them from the last one on, so each that it asks for also starts the
copies of those before it that it has not read yet. Values, and so gradients, are the same bits. At most IN_FLIGHT bytes
wait for their copy: the host waits for the oldest one where a GPU computes faster than the bus carries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

LEAST = 1 << 16  # bytes from which a tensor is worth a copy
IN_FLIGHT = 1 << 30  # bytes on the GPU that wait to be copied
AHEAD = 8  # tensors that are copied back before they are asked for: about those of one layer


@contextmanager
def offloaded(module: nn.Module) -> Iterator[Offloading]:
    """Inside, a forward pass of the module leaves its activations on the host."""
    weights = {p.untyped_storage().data_ptr() for p in module.parameters()}
    offloading = Offloading(weights)
    with torch.autograd.graph.saved_tensors_hooks(offloading.pack, offloading.unpack):
        yield offloading


class Saved:
    """A tensor that autograd saved. host: where it is; device: it again, once it has been copied back.

    was_read: whether the backward pass has had it. It is then not copied back ahead of time again.
    """

    def __init__(self, number: int, host: Tensor, where: torch.device) -> None:
        self.number, self.host, self.where = number, host, where
        self.device: Tensor | None = None
        self.was_read = False
        self.ready: torch.Event | None = None  # the event of its last copy


class Offloading:
    """The tensors of one forward pass, in the order in which they were saved. weights: storages that stay."""

    def __init__(self, weights: set[int]) -> None:
        self.weights = weights
        self.saved: list[Saved] = []
        self.waiting: deque[tuple[torch.Event, Tensor]] = deque()
        self.bytes_waiting = 0

    def pack(self, x: Tensor) -> Tensor | Saved:
        """What autograd keeps in place of a tensor."""
        if x.numel() * x.element_size() < LEAST or x.untyped_storage().data_ptr() in self.weights or not _dense(x):
            return x
        pinned = x.device.type == "cuda"
        host = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, pin_memory=pinned)
        one = Saved(len(self.saved), host, x.device)
        self.saved.append(one)
        if pinned:
            self._send(one, x)
        else:
            host.copy_(x)
        return one

    def unpack(self, one: Tensor | Saved) -> Tensor:
        """The tensor again, when the backward pass reads it."""
        if isinstance(one, Tensor):
            return one
        due = self.due(one)
        one.was_read = True
        if one.where.type != "cuda":
            return one.host
        for each in due:
            self._fetch(each)
        assert one.ready is not None
        torch.cuda.current_stream(one.where).wait_event(one.ready)
        tensor, one.device = one.device, None
        assert tensor is not None
        return tensor

    def due(self, one: Saved) -> list[Saved]:
        """What is copied back when `one` is read: itself, and those saved before it that have not been read.

        An operation packs its tensors in one order and reads them in the same one: without `was_read` each read would
        bring back the one before it, which then stayed on the GPU until the end of the backward pass.
        """
        before = self.saved[max(0, one.number - AHEAD) : one.number]
        return [one, *(each for each in reversed(before) if not each.was_read)]

    def _send(self, one: Saved, x: Tensor) -> None:
        """Start the copy to the host. The tensor is kept until the copy is done."""
        stream = _stream(x.device)
        stream.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(stream):
            one.host.copy_(x.detach(), non_blocking=True)
            one.ready = stream.record_event()
        self.waiting.append((one.ready, x.detach()))
        self.bytes_waiting += x.numel() * x.element_size()
        while self.waiting and (self.bytes_waiting > IN_FLIGHT or self.waiting[0][0].query()):
            copied, sent = self.waiting.popleft()
            copied.synchronize()
            self.bytes_waiting -= sent.numel() * sent.element_size()

    def _fetch(self, one: Saved) -> None:
        """Start the copy back, if it is not under way."""
        if one.device is not None:
            return
        main, stream = torch.cuda.current_stream(one.where), _stream(one.where)
        if self.waiting:  # their memory is free once they have all been copied
            main.wait_stream(stream)
            self.waiting.clear()
        one.device = torch.empty_strided(one.host.shape, one.host.stride(), dtype=one.host.dtype, device=one.where)
        one.device.record_stream(stream)
        stream.wait_stream(main)  # which may still be computing with that memory
        with torch.cuda.stream(stream):
            one.device.copy_(one.host, non_blocking=True)
            one.ready = stream.record_event()


def _dense(x: Tensor) -> bool:
    """Whether its numbers fill their memory without gaps and overlaps, in whatever order of the axes."""
    expected = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


_STREAMS: dict[torch.device, torch.cuda.Stream] = {}


def _stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of a device that copies between it and the host."""
    if device not in _STREAMS:
        _STREAMS[device] = torch.cuda.Stream(device)
    return _STREAMS[device]
