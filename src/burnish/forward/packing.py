"""Rows of tokens laid end to end, shared prefixes once: no padding is computed, no token twice.

A row's prefix is what comes before the first token that is asked about. On a CPU, rows with the same prefix become a
tree of stretches (`Tree`, forward/prefix_tree.py): the tokens that they have in common, asked about or not, are one
stretch, and each row continues from there. On a GPU they become one root (the prefix) and a child each (the rest),
roots first:

    root 0 | root 1 | ... | children of root 0 | children of root 1 | ...

A token attends to the tokens before it in its own stretch, and to all of the stretches that lead to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from burnish.forward.prefix_tree import Numbers, Tree, planted

if TYPE_CHECKING:
    from burnish.forward.cpu_attention import Plan

NONE = np.empty(0, dtype=np.int64)  # where rows begin, in the pack of a CUDA graph
JOINED_ALONE = 1 << 15  # numbers that torch joins without waking up threads
TILE = 64  # tokens of one stretch that a GPU computes together
# on a GPU, the same for sampler and trainer:
KEYS = 32  # of one step of an online softmax
SPAN = 512  # keys after which another softmax begins; spans are computed in parallel and then merged


def on_gpu(device: torch.device) -> bool:
    """Whether packs are laid out for the GPU's attention (tests run it in Triton's interpreter)."""
    return device.type == "cuda"


@dataclass(frozen=True)
class Packed:
    """The rows as the model reads them.

    tokens, positions  [N]
    longest            the length of the longest row
    locate, starts     says where the tokens of all rows lie, row after row; and where each row's begin among those
    shared             whether any beginning is
    keys               [N] the input keys by which beginnings are shared; None: the tokens
    tree               on a CPU: the stretches, and what they go on from
    table              on a GPU: what each tile of the pack attends to
    """

    tokens: Tensor
    positions: Tensor
    longest: int
    locate: Callable[[], Numbers]
    starts: Numbers
    shared: bool = False
    tree: Tree | None = None
    table: Tensor | None = None
    keys: Tensor | None = None

    @property
    def input_keys(self) -> Tensor:
        """[N]: what the model reads at each token, as a number: equal keys after equal keys are the same input."""
        return self.tokens if self.keys is None else self.keys

    @cached_property
    def lines(self) -> Numbers:
        """Where the tokens of all rows lie: asked for when a GPU is already reading them."""
        return self.locate()

    def places(self, row: Numbers, at: Numbers) -> Numbers:
        """Where tokens lie in the pack: token number at[i] of row number row[i]."""
        places: Numbers = self.lines[self.starts[row] + at]
        return places

    def ends(self) -> Numbers:
        """Where the last token of each row lies."""
        return self.lines[self.starts[1:] - 1]

    @cached_property
    def plans(self) -> dict[tuple[int, int, int | None], Plan]:
        """On a CPU: how attention goes through the pack (forward/cpu_attention.py), by the model's heads and window."""
        return {}

    @property
    def packed(self) -> Packed:
        """Of this layout, as of one that holds a pack."""
        return self

    @property
    def long(self) -> bool:
        """Whether a row may have more than one span of keys."""
        return self.longest > SPAN

    @property
    def bound(self) -> int:
        """How long rows may be in a CUDA graph that is captured with this pack: a span, or anything."""
        return 1 << 30 if self.long else SPAN

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        """The layout's part in a layer: [1, heads, N, D] each, to [1, N, heads, D]."""
        from burnish.forward.cpu_attention import attend  # circular import

        q, k, v = (x.squeeze(0).transpose(0, 1) for x in (q, k, v))
        return attend(q, k, v, self, scale, window).unsqueeze(0)


def joined(parts: Sequence[Tensor]) -> npt.NDArray[Any]:
    """Tensors of the CPU end to end, for numpy: torch wakes up threads for small work on rows.

    It also wakes them up to join many numbers, so it gets no more at a time than it joins alone. To ask each tensor for
    its numpy array takes seven times as long.
    """
    sizes = [part.shape[0] for part in parts]
    if sum(sizes) < JOINED_ALONE:
        return torch.cat(list(parts)).numpy()
    ends = np.cumsum(sizes)
    cuts = np.searchsorted(ends, np.arange(0, ends[-1], JOINED_ALONE // 2), side="right").tolist()
    runs = [parts[a:b] for a, b in zip(cuts, [*cuts[1:], len(parts)], strict=True) if a < b]
    return np.concatenate([torch.cat(list(run)).numpy() for run in runs])


def trues(masks: Sequence[Tensor], ends: Numbers) -> tuple[Numbers, Numbers]:
    """Where masks, end to end, are true, and where each mask begins among those places; ends: where each mask itself
    ends.
    """
    flat = np.flatnonzero(joined(masks))
    return flat, np.searchsorted(flat, np.concatenate([[0], ends]))


def send(x: Tensor, device: torch.device) -> Tensor:
    """To the device, without making this thread wait for what the device is doing."""
    if device.type != "cuda" or x.is_cuda:
        return x
    pinned = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
    if x.dtype == torch.bfloat16:
        pinned.copy_(x)
    else:  # torch would wake up threads for it, which takes longer than the copy
        np.copyto(pinned.numpy(), x.numpy())
    return pinned.to(device, non_blocking=True)


@dataclass(frozen=True)
class _Stretches:
    """Consecutive tokens of the pack, stretch after stretch: first the beginnings, then what goes on from one.

    lengths  [S]
    roots    [S] the number of the beginning that each goes on from; -1: it is one itself
    kids     [S, 2] the tokens that go on from it: the first, and where they end
    """

    lengths: Numbers
    roots: Numbers
    kids: Numbers

    def filled(self, missing: int) -> _Stretches:
        """With so many tokens more that are not asked about, in stretches of a tile: they cost what they must and
        change no other token.
        """
        more = np.minimum(TILE, missing - np.arange(0, missing, TILE))
        alone, nobody = np.full(len(more), -1), np.zeros((len(more), 2), dtype=np.int64)
        columns = ((self.lengths, more), (self.roots, alone), (self.kids, nobody))
        return _Stretches(*map(np.concatenate, columns))


def pack(
    rows: Sequence[Numbers],
    asked: Sequence[int] | None,
    device: torch.device,
    size: int | None = None,
    families: list[list[int]] | None = None,
    input_keys: Sequence[Numbers] | None = None,
) -> Packed:
    """Lay rows end to end. asked[i]: the first token of row i that is asked about; None: nothing is shared.

    input_keys: what the model reads at each token of each row, as a number, where that is more than the token (an
    image): beginnings are shared if their keys are equal. None: the tokens are the keys.

    size: on a GPU, fill the pack up to this many tokens that are not asked about, with a table as long as `lines_for`
    says. families: which rows begin alike, where it is known (`families_of`).
    """
    read = rows if input_keys is None else input_keys
    families = families or families_of(read, asked)
    longest = max(row.shape[0] for row in rows)
    starts = _starts([row.shape[0] for row in rows])
    if not on_gpu(device):
        tree, tokens, positions, lines = planted(rows, families, starts, read)
        shared = len(tokens) < starts[-1]
        keys = None if input_keys is None else _at_lines(input_keys, lines, len(tokens))
        return Packed(
            torch.from_numpy(tokens),
            torch.from_numpy(positions),
            longest,
            lambda: lines,
            starts,
            shared,
            tree,
            keys=keys,
        )
    borders = starts.tolist()
    stretches = _two_levels(asked, families, borders)
    locate = partial(_two_level_lines, stretches.lengths[: len(families)], families, borders)
    if size:
        stretches = stretches.filled(size - int(stretches.lengths.sum()))
    table = send(tile_table(stretches, lines_for(size) if size else None), device)
    shared = bool(stretches.roots.max() >= 0)
    tokens, positions = send(_laid(rows, families, stretches), device)
    return Packed(tokens, positions, longest, locate, starts, shared, table=table)


def _at_lines(rows: Sequence[Numbers], lines: Numbers, size: int) -> Tensor:
    """[size]: the numbers of all rows where their tokens lie in the pack."""
    numbers = np.zeros(size, dtype=np.int64)
    numbers[lines] = np.concatenate(rows)
    return torch.from_numpy(numbers)


def _two_levels(asked: Sequence[int] | None, families: list[list[int]], borders: list[int]) -> _Stretches:
    """Roots, then children. borders: where each row begins, and the last one ends, were they end to end."""
    lengths = [
        asked[family[0]] if asked is not None and len(family) > 1 else borders[family[0] + 1] - borders[family[0]]
        for family in families
    ]
    roots, kids = [-1] * len(families), []
    rest = sum(lengths)
    for number, family in enumerate(families):
        before = rest
        if len(family) > 1:
            more = [borders[i + 1] - borders[i] - lengths[number] for i in family]
            lengths += more
            roots += [number] * len(family)
            rest += sum(more)
        kids.append((before, rest))
    kids += [(0, 0)] * (len(lengths) - len(kids))
    return _Stretches(np.array(lengths), np.array(roots), np.array(kids))


def _two_level_lines(roots: Numbers, families: list[list[int]], borders: list[int]) -> Numbers:
    """Where the tokens of all rows lie; roots: the lengths of the beginnings, one for each family."""
    lines, places = np.empty(borders[-1], dtype=np.int64), np.arange(borders[-1])
    start, rest = 0, int(roots.sum())
    for shared, family in zip(roots.tolist(), families, strict=True):
        for i in family:
            begin, end = borders[i], borders[i + 1]
            more = end - begin - shared
            lines[begin : begin + shared] = places[start : start + shared]
            lines[begin + shared : end] = places[rest : rest + more]
            rest += more
        start += shared
    return lines


def _laid(rows: Sequence[Numbers], families: list[list[int]], stretches: _Stretches) -> Tensor:
    """[2, N]: all tokens and their positions; what only fills the pack up is token 0."""
    lengths, roots = stretches.lengths, stretches.roots
    shared = lengths.tolist()
    tokens = [rows[family[0]][:n] for family, n in zip(families, shared, strict=False)]
    tokens += [rows[i][n:] for family, n in zip(families, shared, strict=False) if len(family) > 1 for i in family]
    starts = _starts(lengths)
    first = np.where(roots >= 0, lengths[roots], 0) - starts[:-1]
    laid = np.zeros((2, starts[-1]), dtype=np.int64)
    np.concatenate(tokens, out=laid[0, : sum(map(len, tokens))])
    np.add(np.arange(starts[-1]), np.repeat(first, lengths), out=laid[1])
    return torch.from_numpy(laid)


def _starts(lengths: Sequence[int] | Numbers) -> Numbers:
    """[S + 1]: where stretches of these lengths begin, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)])


def spans_for(keys: int) -> int:
    """In how many parallel spans rows of up to so many keys are decoded, rounded up: few CUDA graphs
    serve all lengths.
    """
    return 1 << (-(-keys // SPAN) - 1).bit_length()


def lines_for(size: int) -> int:
    """How many lines the table of a pack of fixed size has: enough unless its stretches are very short."""
    return 4 * size // TILE + 64


def tile_table(stretches: _Stretches, lines: int | None = None) -> Tensor:
    """[tiles, 8] int32, as the GPU's packed attention reads it; with `lines`, filled up with tiles of no tokens."""
    lengths, roots = stretches.lengths, stretches.roots
    starts = _starts(lengths)
    of_roots = np.where(roots >= 0, [starts[roots], lengths[roots]], 0)
    tiles = -(-lengths // TILE)
    of = np.repeat(np.arange(len(lengths)), tiles)
    number = np.arange(len(of)) - _starts(tiles)[of]  # of a tile in its stretch
    at, end = starts[of] + number * TILE, starts[of + 1]
    rows = np.stack([at, np.minimum(TILE, end - at), starts[of], end, *of_roots[:, of], *stretches.kids[of].T], 1)
    if lines is not None and len(rows) > lines:
        raise TooShort(f"{len(lengths)} stretches make {len(rows)} tiles, more than {lines}")
    table = np.zeros((lines or len(rows), 8), dtype=np.int32)
    table[: len(rows)] = rows
    return torch.from_numpy(table)


class TooShort(ValueError):
    """The stretches of a pack are too short for a table of fixed length."""


def packed_tokens(rows: Sequence[Numbers], asked: Sequence[int] | None, families: list[list[int]]) -> int:
    """How many tokens the pack of these rows has on a GPU; on a CPU, at most."""
    repeated = sum((len(family) - 1) * asked[family[0]] for family in families) if asked else 0
    tokens: int = sum(row.shape[0] for row in rows)
    return tokens - repeated


def families_of(rows: Sequence[Numbers], asked: Sequence[int] | None) -> list[list[int]]:
    """Rows, given by their input keys, by their beginnings, in order of appearance."""
    if asked is None:
        return [[i] for i in range(len(rows))]
    by_beginning: dict[object, list[int]] = {}
    for i, (row, first) in enumerate(zip(rows, asked, strict=True)):
        key = row[:first].tobytes() if first else i
        by_beginning.setdefault(key, []).append(i)
    return list(by_beginning.values())
