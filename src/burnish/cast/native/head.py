"""What follows the logits of a head, in our kernels: as cast/gpu.py does it on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.cast.native import compiled


def suits(x: Tensor) -> bool:
    """Whether our kernels can do it."""
    return x.dtype == torch.float32 and x.device.type == "cpu" and compiled.kernels() is not None


def from_logits(
    logits: Tensor, chosen: Tensor, factor: float, lse: Tensor, logp: Tensor, entropy: Tensor, wanted: bool
) -> None:
    """Log-probs of the chosen tokens under softmax(logits * factor) into logp, what their gradient needs into lse, and, if it
    is wanted, the entropy."""
    run = compiled.there()
    z, chosen = logits.contiguous(), chosen.contiguous()
    spread = entropy.data_ptr() if wanted else None
    by = torch.tensor([factor])
    run.from_logits(
        z.data_ptr(), *z.shape, chosen.data_ptr(), by.data_ptr(), 0, lse.data_ptr(), logp.data_ptr(), spread
    )


def logp_of(logits: Tensor, factor: Tensor, token: Tensor) -> Tensor:
    """[rows]: the log-prob of a token of each row under softmax(logits * factor)."""
    run, z, token, factor = compiled.there(), logits.contiguous(), token.contiguous(), factor.contiguous()
    lse, logp = torch.empty(2, len(z))
    run.from_logits(
        z.data_ptr(), *z.shape, token.data_ptr(), factor.data_ptr(), 1, lse.data_ptr(), logp.data_ptr(), None
    )
    return logp


def d_logits(
    logits: Tensor, chosen: Tensor, factor: float, lse: Tensor, entropy: Tensor, grad: Tensor, more: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """d total / d logits, from the gradients of log-probs and (unless None) of entropies."""
    run, d = compiled.there(), torch.empty_like(logits)
    assert dtype == torch.float32
    z, chosen, lse, entropy, grad = (x.contiguous() for x in (logits, chosen, lse, entropy, grad))
    along = None if more is None else more.contiguous()
    run.d_logits(
        z.data_ptr(), *z.shape, chosen.data_ptr(), factor, lse.data_ptr(), entropy.data_ptr(), grad.data_ptr(),
        None if along is None else along.data_ptr(), d.data_ptr(),
    )  # fmt: skip
    return d


def choose(logits: Tensor, factor: Tensor, keys: Tensor, positions: Tensor, greedy: Tensor) -> tuple[Tensor, Tensor]:
    """As cast/engine/sampling.py says."""
    run, z = compiled.there(), logits.contiguous()
    token, logp = torch.empty(len(z), dtype=torch.long), torch.empty(len(z))
    given = [x.contiguous() for x in (factor, keys, positions, greedy)]
    run.choose(z.data_ptr(), *z.shape, *(x.data_ptr() for x in given), token.data_ptr(), logp.data_ptr())
    return token, logp
