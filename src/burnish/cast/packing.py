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
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

Numbers = npt.NDArray[np.int64]
TILE = 64  # tokens of one stretch that a GPU works on together


def on_gpu(device: torch.device) -> bool:
    """Whether packs are laid out for the GPU's attention (tests run it in Triton's interpreter)."""
    return device.type == "cuda"


@dataclass(frozen=True)
class Packed:
    """The rows as the model reads them.

    tokens, positions  [N], roots first
    roots, children    on a CPU: the borders of the stretches of each kind; kids: those of the children of each root
    n_roots            how many of the N tokens belong to roots
    longest            the length of the longest row
    rows               for each row: where its beginning lies, how long that is, where the rest lies
    shared             whether any beginning is
    table              on a GPU: what each tile of the pack looks at (cast/tiled.py)
    """

    tokens: Tensor
    positions: Tensor
    roots: Numbers | None
    children: Numbers | None
    kids: Numbers | None
    n_roots: int
    longest: int
    rows: list[tuple[int, int, int]]
    shared: bool = False
    table: Tensor | None = None

    def places(self, row: Numbers, at: Numbers) -> Numbers:
        """Where tokens lie in the pack: token number at[i] of row number row[i]."""
        start, length, rest = np.array(self.rows).T[:, row]
        return at + np.where(at < length, start, rest - length)

    @cached_property
    def plans(self) -> dict[Any, Any]:
        """On a CPU: how attention goes through the pack (cast/varlen.py), by the model's heads and window."""
        return {}

    @property
    def packed(self) -> Packed:
        """Of this layout, as of one that holds a pack."""
        return self

    @property
    def read_by_tiles(self) -> bool:
        """Whether a decoder in our own kernels can read it."""
        return self.table is not None

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        """The layout's part in a layer: [1, heads, N, D] each, to [1, N, heads, D]."""
        from burnish.cast.varlen import attend  # it knows this file

        q, k, v = (x.squeeze(0).transpose(0, 1) for x in (q, k, v))
        return attend(q, k, v, self, scale, window).unsqueeze(0)


def joined(parts: Sequence[Tensor]) -> npt.NDArray[Any]:
    """Tensors of the CPU end to end. Small work on rows is numpy's: torch wakes up threads for it."""
    return np.concatenate([part.numpy() for part in parts])


def send(x: Tensor, device: torch.device) -> Tensor:
    """To the device, without making this thread wait for what the device is doing."""
    if device.type != "cuda" or x.is_cuda:
        return x
    held = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
    if x.dtype == torch.bfloat16:
        held.copy_(x)
    else:  # torch would wake up threads for it, which takes longer than the copy
        np.copyto(held.numpy(), x.numpy())
    return held.to(device, non_blocking=True)


@dataclass(frozen=True)
class _Stretch:
    """Consecutive tokens of the pack: a beginning, or what goes on from one (root: its number; kids: their tokens)."""

    tokens: Tensor
    offset: int = 0  # the position of its first token
    root: int | None = None
    kids: tuple[int, int] = (0, 0)


def pack(
    rows: Sequence[Tensor],
    asked: Sequence[int] | None,
    device: torch.device,
    size: int | None = None,
    families: list[list[int]] | None = None,
) -> Packed:
    """Lay rows end to end. asked[i]: the first token of row i that is asked about; None: nothing is shared.

    size: on a GPU, fill the pack up to this many tokens that nobody asks about, with a table as long as `lines_for` says.
    families: which rows begin alike, where it is known (`families_of`).
    """
    families = families or families_of(rows, asked)
    lengths = [rows[family[0]].shape[0] if len(family) == 1 else asked[family[0]] for family in families]  # type: ignore[index]
    n_roots = sum(lengths)
    roots: list[_Stretch] = []
    children: list[_Stretch] = []
    where: list[tuple[int, int, int]] = [(0, 0, 0)] * len(rows)
    start, rest = 0, n_roots
    for family, shared in zip(families, lengths, strict=True):
        before = rest
        for i in family:
            where[i] = (start, shared, rest)
            if len(family) > 1:
                children.append(_Stretch(rows[i][shared:], shared, len(roots)))
                rest += rows[i].shape[0] - shared
        roots.append(_Stretch(rows[family[0]][:shared], kids=(before, rest)))
        start += shared
    longest = max(row.shape[0] for row in rows)
    if on_gpu(device):
        stretches = [*roots, *children, *_filling(size - rest if size else 0)]
        table = send(tile_table(stretches, lines_for(size) if size else None), device)
        return Packed(*_joined(stretches, device), None, None, None, n_roots, longest, where, bool(children), table)
    of_roots, of_children = (_borders([len(s.tokens) for s in part]) if part else None for part in (roots, children))
    kids = _borders([root.kids[1] - root.kids[0] for root in roots]) if children else None
    tokens, positions = _joined([*roots, *children], device)
    return Packed(tokens, positions, of_roots, of_children, kids, n_roots, longest, where, bool(children))


def _joined(stretches: list[_Stretch], device: torch.device) -> tuple[Tensor, Tensor]:
    """All tokens and their positions."""
    lengths = [s.tokens.shape[0] for s in stretches]
    tokens = joined([s.tokens for s in stretches])
    first = np.array([s.offset for s in stretches]) - _starts(lengths)[:-1]
    positions = np.arange(len(tokens)) + np.repeat(first, lengths)
    both = send(torch.from_numpy(np.stack([tokens, positions])), device)
    return both[0], both[1]


def _starts(lengths: Sequence[int] | Numbers) -> Numbers:
    """[S + 1]: where stretches of these lengths begin, and where the last one ends."""
    return np.cumsum([0, *lengths])


def _filling(missing: int) -> list[_Stretch]:
    """Tokens that nobody asks about, in stretches of a tile: they cost what they must and disturb nobody."""
    lengths = [min(TILE, missing - at) for at in range(0, missing, TILE)]
    return [_Stretch(torch.zeros(n, dtype=torch.long)) for n in lengths]


def lines_for(size: int) -> int:
    """How many lines the table of a pack of fixed size has: enough unless its stretches are very short."""
    return 4 * size // TILE + 64


def tile_table(stretches: list[_Stretch], lines: int | None = None) -> Tensor:
    """[tiles, 8] int32, as cast/tiled.py reads it; with `lines`, filled up with tiles of no tokens."""
    lengths = np.array([s.tokens.shape[0] for s in stretches])
    starts = _starts(lengths)
    of_roots = [(starts[s.root], lengths[s.root]) if s.root is not None else (0, 0) for s in stretches]
    facts = np.array([(*root, *s.kids) for root, s in zip(of_roots, stretches, strict=True)])
    tiles = -(-lengths // TILE)
    of = np.repeat(np.arange(len(stretches)), tiles)
    number = np.arange(len(of)) - _starts(tiles)[of]  # of a tile in its stretch
    at, end = starts[of] + number * TILE, starts[of + 1]
    found = np.stack([at, np.minimum(TILE, end - at), starts[of], end, *facts[of].T], 1)
    if lines is not None and len(found) > lines:
        raise TooShort(f"{len(stretches)} stretches make {len(found)} tiles, more than {lines}")
    table = torch.zeros(lines or len(found), 8, dtype=torch.int32)
    table[: len(found)] = torch.from_numpy(found)
    return table


class TooShort(ValueError):
    """The stretches of a pack are too short for a table of fixed length."""


def _borders(lengths: list[int]) -> Numbers:
    return np.cumsum([0, *lengths], dtype=np.int64)


def packed_tokens(rows: Sequence[Tensor], asked: Sequence[int] | None, families: list[list[int]]) -> int:
    """How many tokens the pack of these rows has."""
    repeated = sum((len(family) - 1) * asked[family[0]] for family in families) if asked else 0
    return sum(row.shape[0] for row in rows) - repeated


def families_of(rows: Sequence[Tensor], asked: Sequence[int] | None) -> list[list[int]]:
    """Rows by their beginnings, in order of appearance; a row that ends where its beginning does shares nothing."""
    if asked is None:
        return [[i] for i in range(len(rows))]
    found: dict[object, list[int]] = {}
    for i, (row, first) in enumerate(zip(rows, asked, strict=True)):
        key = row.numpy()[:first].tobytes() if 0 < first < row.shape[0] else i
        found.setdefault(key, []).append(i)
    return list(found.values())
