"""Copies of tensors in reusable host buffers (pinned for CUDA): only the first copy allocates memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

SHARE = 0.5  # the largest share of free memory that a copy may take


class HostBuffers:
    """Buffers by position, reused from one snapshot to the next. Tensors that share memory share the copy."""

    def __init__(self) -> None:
        self._buffers: dict[int, Tensor] = {}

    def fits(self, size: int) -> bool:
        """Whether there is memory for a copy of `size` bytes, counting the buffers that exist already."""
        pinned = sum(buffer.numel() * buffer.element_size() for buffer in self._buffers.values())
        free = available_memory()
        return free is None or size - pinned <= SHARE * free

    def copy(self, tensors: Iterable[Tensor], ready: torch.cuda.Event | None = None) -> dict[int, Tensor]:
        """A copy of each tensor, by the `id` of the original.

        ready: CUDA event after which the tensors are valid; they are copied on a separate stream.
        """
        stream = None
        if ready is not None:
            stream = torch.cuda.Stream()
            stream.wait_event(ready)
        copies: dict[int, Tensor] = {}
        by_memory: dict[tuple[int, torch.Size, torch.dtype], Tensor] = {}
        with torch.cuda.stream(stream), torch.no_grad():
            for position, tensor in enumerate(tensors):
                memory = (tensor.data_ptr(), tensor.shape, tensor.dtype)
                if not tensor.numel() or memory not in by_memory:
                    buffer = self._buffer(position, tensor)
                    buffer.copy_(tensor, non_blocking=stream is not None)
                    by_memory[memory] = buffer
                copies[id(tensor)] = by_memory[memory]
        if stream is not None:
            stream.synchronize()
        return copies

    def _buffer(self, position: int, tensor: Tensor) -> Tensor:
        buffer = self._buffers.get(position)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            pinned = tensor.device.type == "cuda"
            self._buffers[position] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
        return self._buffers[position]


def available_memory() -> int | None:
    """Bytes of memory available without swapping; None if the system has no /proc/meminfo."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), None)
