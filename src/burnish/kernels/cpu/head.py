"""What follows the logits of a head, in our kernels: as kernels/triton/logprob.py does it on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.engine.sampling import require_chosen
from burnish.kernels.cpu import build


def suits(x: Tensor) -> bool:
    """Whether our kernels can do it."""
    return x.dtype == torch.float32 and x.device.type == "cpu" and build.kernels() is not None


def from_logits(
    logits: Tensor, chosen: Tensor, factor: float, lse: Tensor, logp: Tensor, entropy: Tensor, wanted: bool
) -> None:
    """Log-probs of the chosen tokens under softmax(logits * factor) into logp, what their gradient needs into lse, and,
    if it
    is wanted, the entropy."""
    run = build.there()
    z, chosen = logits.contiguous(), chosen.contiguous()
    spread = entropy.data_ptr() if wanted else None
    by = torch.tensor([factor])
    outside = run.from_logits(
        z.data_ptr(), *z.shape, chosen.data_ptr(), by.data_ptr(), 0, lse.data_ptr(), logp.data_ptr(), spread
    )
    require_inside(outside, z)


def logp_of(logits: Tensor, factor: Tensor, token: Tensor) -> Tensor:
    """[rows]: the log-prob of a token of each row under softmax(logits * factor)."""
    run, z, token, factor = build.there(), logits.contiguous(), token.contiguous(), factor.contiguous()
    lse, logp = torch.empty(2, len(z))
    outside = run.from_logits(
        z.data_ptr(), *z.shape, token.data_ptr(), factor.data_ptr(), 1, lse.data_ptr(), logp.data_ptr(), None
    )
    require_inside(outside, z)
    return logp


def d_logits(
    logits: Tensor, chosen: Tensor, factor: float, lse: Tensor, entropy: Tensor, grad: Tensor, more: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """d total / d logits, from the gradients of log-probs and (unless None) of entropies."""
    run, d = build.there(), torch.empty_like(logits)
    assert dtype == torch.float32
    z, chosen, lse, entropy, grad = (x.contiguous() for x in (logits, chosen, lse, entropy, grad))
    along = None if more is None else more.contiguous()
    outside = run.d_logits(
        z.data_ptr(), *z.shape, chosen.data_ptr(), factor, lse.data_ptr(), entropy.data_ptr(), grad.data_ptr(),
        None if along is None else along.data_ptr(), d.data_ptr(),
    )  # fmt: skip
    require_inside(outside, z)
    return d


def choose(logits: Tensor, factor: Tensor, keys: Tensor, positions: Tensor, greedy: Tensor) -> tuple[Tensor, Tensor]:
    """As engine/sampling.py says."""
    run, z = build.there(), logits.contiguous()
    token, logp = torch.empty(len(z), dtype=torch.long), torch.empty(len(z))
    given = [x.contiguous() for x in (factor, keys, positions, greedy)]
    without = run.choose(z.data_ptr(), *z.shape, *(x.data_ptr() for x in given), token.data_ptr(), logp.data_ptr())
    require_chosen(without)
    return token, logp


def require_inside(outside: int, logits: Tensor) -> None:
    """Raise ValueError where so many token ids are beyond the vocabulary."""
    if outside:
        raise ValueError(
            f"{outside} token ids are not in the vocabulary of {logits.shape[1]}; check the tokenizer and the data"
        )
