"""Rows that are complete: what they hold comes to the host while the device goes on with the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor


class Brought:
    """Tensors on their way to the host; this thread waits for them only when it must."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.event: torch.cuda.Event | None = None
        self.tensors = list(tensors)
        if tensors[0].is_cuda:
            self.tensors = [
                torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True) for x in tensors
            ]
            self.event = torch.cuda.Event()
            self.event.record()

    @property
    def there(self) -> bool:
        return self.event is None or self.event.query()

    def wait(self) -> list[Tensor]:
        if self.event is not None:
            self.event.synchronize()
        return self.tensors


class Complete:
    """Some complete rows: whose they are, what they hold, and why they were ended by somebody else ("": they were not)."""

    def __init__(
        self, owners: list[int], tokens: Tensor, logp: Tensor, count: Tensor, ended: Tensor, stopped: str
    ) -> None:
        self.owners, self.stopped = owners, stopped
        self.held = Brought((tokens, logp, count, ended))

    def samples(self) -> Iterator[tuple[int, Tensor, Tensor, bool]]:
        """Of each row: whose it is, its tokens, their log-probs, whether a stop token ended it."""
        tokens, logp, count, ended = self.held.wait()
        counts = count.tolist()
        written = np.arange(tokens.shape[1]) < np.array(counts)[:, None]
        said, chances = (torch.from_numpy(x.numpy()[written]).split(counts) for x in (tokens, logp))
        yield from zip(self.owners, said, chances, ended.tolist(), strict=True)
