"""Hidden states of tokens after others whose keys and values are kept: one way on, or several to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from burnish.forward.paths import evaluating
from burnish.forward.runner import ModelRunner


@dataclass
class Kept:
    """What one model keeps of the tokens of one row: keys and values [heads, n, D] by layer, and the last state [H].

    Tensors are replaced, never changed, so that copies share them.
    """

    tokens: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))
    layers: dict[nn.Module, tuple[Tensor, Tensor]] = field(default_factory=dict)
    state: Tensor | None = None

    def copy(self) -> Kept:
        """Another row with the same tokens."""
        return Kept(self.tokens, dict(self.layers), self.state)

    def begins(self, tokens: Tensor) -> bool:
        """Whether these are the first of the tokens."""
        return torch.equal(self.tokens, tokens[: len(self.tokens)])


@dataclass(frozen=True)
class After:
    """The layout of new tokens, sizes[i] of them after row i: each attends to what is kept of its row.

    forked  they are alternatives of one position, which do not see each other, and nothing of them is kept; else they
            follow each other
    """

    rows: Sequence[Kept]
    sizes: Sequence[int]
    forked: bool
    packed: None = None

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        """[N, 1, heads, D] from the queries, keys and values [N, heads, 1, D] of one layer."""
        attended = []
        parts = zip(*(x[:, :, 0].split(list(self.sizes)) for x in (q, k, v)), strict=True)
        for row, size, (own_q, *own) in zip(self.rows, self.sizes, parts, strict=True):
            before = row.layers.get(module)
            new = [x.transpose(0, 1) for x in own]
            keys, values = (torch.cat([x] if before is None else [before[i], x], 1) for i, x in enumerate(new))
            mask = self._mask(len(row.tokens), size, window, q.device)
            seen = F.scaled_dot_product_attention(
                own_q.transpose(0, 1)[None], keys[None], values[None], attn_mask=mask, scale=scale, enable_gqa=True
            )
            attended.append(seen[0].transpose(0, 1))
            if not self.forked:
                row.layers[module] = keys, values
        return torch.cat(attended)[:, None]

    def _mask(self, before: int, size: int, window: int | None, device: torch.device) -> Tensor:
        """[size, before + size]: what each new token attends to."""
        new = torch.eye(size, dtype=torch.bool) if self.forked else torch.ones(size, size, dtype=torch.bool).tril()
        mask = torch.cat([torch.ones(size, before, dtype=torch.bool), new], 1)
        if window is not None:
            position = before + torch.arange(size) * (not self.forked)
            mask &= torch.arange(before + size) > (position - window)[:, None]
        return mask.to(device)


@torch.no_grad()
def read_on(runner: ModelRunner, rows: Sequence[Kept], tokens: Sequence[Tensor]) -> Tensor:
    """[rows, H]: the states after so far unread tokens of each row, which are kept; the last one where none are new."""
    new = [i for i, some in enumerate(tokens) if len(some)]
    if new:
        states = _states(runner, [rows[i] for i in new], [tokens[i] for i in new], forked=False)
        for i, new_states in zip(new, states.split([len(tokens[i]) for i in new]), strict=True):
            rows[i].tokens, rows[i].state = torch.cat([rows[i].tokens, tokens[i]]), new_states[-1]
    return torch.stack([row.state for row in rows if row.state is not None])


@torch.no_grad()
def fork(runner: ModelRunner, rows: Sequence[Kept], candidates: Tensor) -> Tensor:
    """[rows, k, H]: the states after each of k candidates [rows, k] for the next token of each row; none is kept."""
    return _states(runner, rows, list(candidates), forked=True).view(*candidates.shape, -1)


def _states(runner: ModelRunner, rows: Sequence[Kept], tokens: Sequence[Tensor], forked: bool) -> Tensor:
    device, sizes = next(runner.module.parameters()).device, [len(some) for some in tokens]
    places = [len(row.tokens) + torch.arange(n) * (not forked) for row, n in zip(rows, sizes, strict=True)]
    flat, positions = torch.cat(list(tokens)).to(device), torch.cat(places).to(device)
    with evaluating([runner.module]):
        return runner.hidden(flat[:, None], positions[:, None], After(rows, sizes, forked))[:, 0]
