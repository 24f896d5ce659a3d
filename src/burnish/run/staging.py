"""Copies of tensors in host memory, in buffers that are kept: the first copy pays for the memory, the others do not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

SHARE = 0.5  # of the memory that is free: a copy that would take more is not made


class Staging:
    """Buffers by place, reused from one snapshot to the next. Tensors that share their memory share the copy."""

    def __init__(self) -> None:
        self._buffers: dict[int, Tensor] = {}

    def fits(self, size: int) -> bool:
        """Whether there is memory for a copy of `size` bytes; what the buffers hold already is not asked for again."""
        held = sum(buffer.numel() * buffer.element_size() for buffer in self._buffers.values())
        free = available_memory()
        return free is None or size - held <= SHARE * free

    def copy(self, tensors: Iterable[Tensor], ready: torch.cuda.Event | None = None) -> dict[int, Tensor]:
        """A copy of each tensor, by the `id` of the original.

        ready: on a GPU, the moment from which the tensors hold what is wanted; they are copied beside its other work.
        """
        stream = None
        if ready is not None:
            stream = torch.cuda.Stream()
            stream.wait_event(ready)
        found: dict[int, Tensor] = {}
        by_memory: dict[tuple[int, torch.Size, torch.dtype], Tensor] = {}
        with torch.cuda.stream(stream), torch.no_grad():
            for place, tensor in enumerate(tensors):
                where = (tensor.data_ptr(), tensor.shape, tensor.dtype)
                if not tensor.numel() or where not in by_memory:
                    buffer = self._buffer(place, tensor)
                    buffer.copy_(tensor, non_blocking=stream is not None)
                    by_memory[where] = buffer
                found[id(tensor)] = by_memory[where]
        if stream is not None:
            stream.synchronize()
        return found

    def _buffer(self, place: int, tensor: Tensor) -> Tensor:
        held = self._buffers.get(place)
        if held is None or held.shape != tensor.shape or held.dtype != tensor.dtype:
            pinned = tensor.device.type == "cuda"
            self._buffers[place] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
        return self._buffers[place]


def available_memory() -> int | None:
    """Bytes of memory that could be had without swapping; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), None)
