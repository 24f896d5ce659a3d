"""One token per row from its logits, by noise that belongs to the row alone."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core.randomness import uniform
from burnish.core.rejected import NotFinite
from burnish.forward.accelerate import kernels

BLOCK = 256  # a large vocabulary is searched by blocks first, so that no cumulative sum runs over all of it


def choose(logits: Tensor, factor: Tensor, keys: Tensor, positions: Tensor, greedy: Tensor) -> tuple[Tensor, Tensor]:
    """[rows] tokens and their log-probs under softmax(logits * factor).

    The token is where the cumulative probability passes u(key, position); greedy rows take the likeliest.
    """
    fast = kernels()
    chosen = None if fast is None else fast.choose(logits, factor, keys, positions, greedy)
    if chosen is not None:
        return chosen
    seen = not logits.is_cuda  # whether a look at a flag costs nothing; a pass over a large vocabulary does
    z = logits if seen and bool((factor == 1).all()) else logits * factor[:, None]
    logs = torch.log_softmax(z, -1)
    if seen:
        require_chosen(int(logs[:, 0].isnan().sum()))  # one NaN or infinite logit makes a whole row NaN
    token = _pass(logs.exp(), uniform(keys, positions))
    if not seen or bool(greedy.any()):
        token = torch.where(greedy, logits.argmax(-1), token)
    return token, logs.gather(-1, token[:, None])[:, 0]


def require_chosen(without: int) -> None:
    """Raise NotFinite where so many rows have logits from which no token can be chosen."""
    if without:
        raise NotFinite(
            "a model's logits are NaN or infinite, so that no next token can be chosen: its weights are broken, or "
            "the learning rate "
            "is too high"
        )


def logp_of(logits: Tensor, factor: Tensor, token: Tensor) -> Tensor:
    """[rows]: the log-prob of a token of each row under softmax(logits * factor)."""
    fast = kernels()
    by_kernel = None if fast is None else fast.logp_of(logits, factor, token)
    if by_kernel is not None:
        return by_kernel
    return torch.log_softmax(logits * factor[:, None], -1).gather(-1, token[:, None])[:, 0]


def _pass(p: Tensor, u: Tensor) -> Tensor:
    """[rows]: the first token at which the cumulative sum of p [rows, V] exceeds u times its total."""
    rows, vocabulary = p.shape
    if vocabulary % BLOCK or vocabulary <= 4 * BLOCK:
        return _search(p.double().cumsum(-1), u)
    blocks = p.view(rows, -1, BLOCK)
    sums = (blocks.sum(-1, dtype=torch.float64) if p.is_cuda else blocks.sum(-1).double()).cumsum(-1)
    block = _search(sums, u)
    before = torch.where(block > 0, sums.gather(-1, (block - 1).clamp(min=0)[:, None])[:, 0], 0.0)
    inside = blocks[torch.arange(rows, device=p.device), block].double().cumsum(-1)
    left = ((u * sums[:, -1] - before) / inside[:, -1]).clamp(0.0, 1.0)
    return block * BLOCK + _search(inside, left)


def _search(cumulative: Tensor, u: Tensor) -> Tensor:
    """[rows]: the first place where the cumulative weight exceeds u times the total; never one without weight."""
    total = cumulative[:, -1:]
    wanted = torch.minimum(u[:, None] * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, wanted, right=True)[:, 0]


def restrict(logits: Tensor, factor: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """-inf outside the top_k likeliest tokens, outside the smallest set that holds top_p, below min_p
    of the likeliest.
    """
    logp = torch.log_softmax(logits * factor[:, None], -1)
    ranked, index = logp.sort(-1, descending=True)
    rank = torch.arange(logp.shape[-1], device=logits.device)
    keep = (top_k[:, None] == 0) | (rank < top_k[:, None])
    before = ranked.exp().cumsum(-1) - ranked.exp()
    keep &= (before < top_p[:, None]) | (rank == 0)
    keep &= ranked >= ranked[:, :1] + min_p[:, None].log()
    return logits.masked_fill(~torch.zeros_like(keep).scatter(-1, index, keep), -torch.inf)
