"""Copies of finished rows to the host, while the device decodes the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from burnish.core.types import Allowed
from burnish.engine.request import Stopped


class HostCopy:
    """Tensors being copied to the host, asynchronously from a GPU."""

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
    def ready(self) -> bool:
        """Whether the copy is complete."""
        return self.event is None or self.event.query()

    def wait(self) -> list[Tensor]:
        """The copies, once they are complete."""
        if self.event is not None:
            self.event.synchronize()
        return self.tensors


class FinishedRows:
    """Some finished rows: the numbers of their requests, their samples, and why the scheduler ended them ("": it did
    not).

    begins: how many tokens in each row's slot are older than its sample
    allowed: what its tokens were drawn among, where that is kept
    """

    def __init__(
        self,
        owners: list[int],
        begins: list[int],
        tensors: Sequence[Tensor],
        stopped: Stopped | None,
        allowed: Sequence[Allowed | None] | None = None,
    ) -> None:
        self.owners, self.begins, self.stopped = owners, begins, stopped
        self.allowed = [None] * len(owners) if allowed is None else allowed
        self.copy = HostCopy(tensors)

    def samples(self) -> Iterator[tuple[int, Tensor, Tensor, bool, Allowed | None]]:
        """Of each row: the number of its request, its tokens, their log-probs, whether a stop token ended it, and what
        they were drawn among.
        """
        tokens, logp, count, ended = self.copy.wait()
        begins, ends, places = np.array(self.begins), count.numpy(), np.arange(tokens.shape[1])
        written = (places >= begins[:, None]) & (places < ends[:, None])
        counts = (ends - begins).tolist()
        replies, log_probs = (torch.from_numpy(x.numpy()[written]).split(counts) for x in (tokens, logp))
        yield from zip(self.owners, replies, log_probs, ended.tolist(), self.allowed, strict=True)
