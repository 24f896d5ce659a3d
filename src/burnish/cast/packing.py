"""Rows of tokens laid end to end, the beginnings that they share kept once: no padding is computed, no prompt twice.

A row's beginning is what comes before the first token that is asked about. Rows with the same beginning become one
root (the beginning) and a child each (the rest); every other row is a root of its own. Roots come first, then the
children, those of one root side by side:

    root 0 | root 1 | ... | children of root 0 | children of root 1 | ...

A token looks at the tokens before it in its own stretch, and a child's token at all of its root as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Cuts:
    """Where stretches begin: stretch i of the queries looks at stretch i of the keys.

    q, k     [S + 1] int32: their borders;  longest_q, longest_k: the longest stretches
    """

    q: Tensor
    k: Tensor
    longest_q: int
    longest_k: int

    @cached_property
    def padded_q(self) -> tuple[Tensor, Tensor]:
        return _padded(self.q, self.longest_q)

    @cached_property
    def padded_k(self) -> tuple[Tensor, Tensor]:
        return self.padded_q if self.k is self.q else _padded(self.k, self.longest_k)

    def key_mask(self, dtype: torch.dtype) -> Tensor | None:
        """[S, 1, longest_q, longest_k]: -inf at keys that are padding; None where nothing is padded."""
        inside = self.padded_k[1]
        if bool(inside.all()):
            return None
        mask = torch.zeros(inside.shape, dtype=dtype, device=inside.device).masked_fill(~inside, -torch.inf)
        return mask[:, None, None].expand(-1, 1, self.longest_q, -1)


def _padded(borders: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """[S, longest] places (padding points at the last place of its stretch), and where they are real."""
    starts, ends = borders[:-1].long(), borders[1:].long()
    places = starts[:, None] + torch.arange(longest, device=borders.device)
    return torch.minimum(places, (ends - 1).clamp(min=0)[:, None]), places < ends[:, None]


@dataclass(frozen=True)
class Packed:
    """The rows as the model reads them.

    tokens, positions  [N], roots first
    roots, children    stretches of each kind that look at themselves; in_roots: what children's tokens see of roots
    n_roots            how many of the N tokens belong to roots
    longest            the length of the longest row
    rows               for each row: where its beginning lies, how long that is, where the rest lies
    everything, sizes  on a GPU: roots and children as stretches of one call, and the four sizes that it needs
    """

    tokens: Tensor
    positions: Tensor
    roots: Cuts
    children: Cuts | None
    in_roots: Cuts | None
    n_roots: int
    longest: int
    rows: list[tuple[int, int, int]]
    everything: Cuts | None = None
    sizes: Tensor | None = None

    def places(self, row: int, tokens: Tensor) -> Tensor:
        """Where tokens number `tokens` of a row lie in the pack."""
        start, length, rest = self.rows[row]
        return torch.where(tokens < length, tokens + start, tokens - length + rest)

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        """The layout's part in a layer: [1, heads, N, D] each, to [1, N, heads, D]."""
        from burnish.cast.varlen import attend  # it knows this file

        q, k, v = (x.squeeze(0).transpose(0, 1) for x in (q, k, v))
        return attend(q, k, v, self, scale, window).unsqueeze(0)

    @property
    def borders(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """All that attention on a GPU needs to know, as tensors: see from_borders."""
        assert self.sizes is not None and self.everything is not None
        none = self.roots.q[:0]
        return self.everything.q, self.roots.q, self.in_roots.q if self.in_roots else none, self.sizes

    @classmethod
    def from_borders(cls, everything: Tensor, roots: Tensor, of_root: Tensor, sizes: Tensor) -> Packed:
        """A pack without its tokens: borders of all stretches, of roots, of children by root; sizes is [4] on the CPU."""
        n_roots, longest, longest_root, longest_of_root = sizes.tolist()
        root_cuts = Cuts(roots, roots, longest_root, longest_root)
        in_roots = Cuts(of_root, roots, longest_of_root, longest_root) if len(of_root) else None
        both = Cuts(everything, everything, longest, longest)
        return cls(everything, everything, root_cuts, None, in_roots, n_roots, longest, [], both, sizes)


def send(x: Tensor, device: torch.device) -> Tensor:
    """To the device, without making this thread wait for what the device is doing."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x


def pack(rows: Sequence[Tensor], asked: Sequence[int] | None, device: torch.device) -> Packed:
    """Lay rows end to end. asked[i]: the first token of row i that is asked about; None: nothing is shared."""
    families = _families(rows, asked)
    roots: list[Tensor] = []
    children: list[Tensor] = []
    offsets: list[int] = []  # the position of each child's first token
    of_root: list[int] = []  # how many tokens of children each root has
    where: list[tuple[int, int, int]] = [(0, 0, 0)] * len(rows)
    n_roots = n_children = 0
    for family in families:
        shared = len(rows[family[0]]) if len(family) == 1 else asked[family[0]]  # type: ignore[index]
        start, before = n_roots, n_children
        roots.append(rows[family[0]][:shared])
        n_roots += shared
        for i in family if len(family) > 1 else ():
            where[i] = (start, shared, n_children)
            children.append(rows[i][shared:])
            offsets.append(shared)
            n_children += len(children[-1])
        if len(family) == 1:
            where[family[0]] = (start, shared, 0)
        of_root.append(n_children - before)
    where = [(start, length, rest + n_roots) for start, length, rest in where]
    stretches = [*roots, *children]
    first = [0] * len(roots) + offsets
    positions = torch.cat([torch.arange(len(s)) + at for s, at in zip(stretches, first, strict=True)])
    root_cuts = _cuts([len(s) for s in roots], device)
    child_cuts = _cuts([len(s) for s in children], device) if children else None
    in_roots = None
    if children:
        borders = _borders(of_root, device)
        in_roots = Cuts(borders, root_cuts.k, max(of_root), root_cuts.longest_k)
    longest = max(map(len, rows))
    both, sizes = None, None
    if device.type == "cuda":
        both = _cuts([len(s) for s in stretches], device)
        of = in_roots.longest_q if in_roots else 0
        sizes = torch.tensor([n_roots, max(both.longest_q, 1), root_cuts.longest_q, of])
    tokens, positions = send(torch.cat(stretches), device), send(positions, device)
    return Packed(
        tokens, positions, root_cuts, child_cuts, in_roots, n_roots, longest, where, both, sizes
    )  # fmt: skip


def _borders(lengths: list[int], device: torch.device) -> Tensor:
    return send(torch.tensor([0, *lengths]).cumsum(0).to(torch.int32), device)


def _cuts(lengths: list[int], device: torch.device) -> Cuts:
    borders = _borders(lengths, device)
    return Cuts(borders, borders, max(lengths), max(lengths))


def _families(rows: Sequence[Tensor], asked: Sequence[int] | None) -> list[list[int]]:
    """Rows by their beginnings, in order of appearance; a row that ends where its beginning does shares nothing."""
    if asked is None:
        return [[i] for i in range(len(rows))]
    found: dict[object, list[int]] = {}
    for i, (row, first) in enumerate(zip(rows, asked, strict=True)):
        key = row[:first].numpy().tobytes() if 0 < first < len(row) else i
        found.setdefault(key, []).append(i)
    return list(found.values())
