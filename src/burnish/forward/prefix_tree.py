"""Rows of tokens as trees: whatever rows of a family begin with in common is one stretch, and each goes on from there.

Replies to one prompt often begin alike, the more so the surer the policy is of itself. What a causal model makes of a
token depends on nothing but the tokens before it, so what is common has to be read once, forward and backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Tree:
    """The stretches of a pack, family after family, each after the one that it goes on from.

    stretches  [S, 3]: its first token, its end, and the number of the stretch that it goes on from (-1: none)
    begins     [families + 1]: where the stretches of each family begin
    loud       not empty once (almost) all of it was found to have a gradient (kernels/cpu/c_attention.py)
    """

    stretches: Numbers
    begins: Numbers
    loud: list[bool] = field(default_factory=list, compare=False)

    @cached_property
    def paths(self) -> list[Numbers]:
        """For each stretch, the tokens that lead to it, in order."""
        leading: list[Numbers] = []
        for _, _, parent in self.stretches:
            if parent < 0:
                leading.append(np.empty(0, dtype=np.int64))
            else:
                first, end, _ = self.stretches[parent]
                leading.append(np.concatenate([leading[parent], np.arange(first, end)]))
        return leading

    @classmethod
    def alike(cls, rows: int, length: int) -> Tree:
        """Rows of one length that have nothing in common."""
        starts = np.arange(rows) * length
        return cls(np.stack([starts, starts + length, np.full(rows, -1)], 1), np.arange(rows + 1))


def planted(
    rows: Sequence[Numbers], families: list[list[int]], starts: Numbers, keys: Sequence[Numbers]
) -> tuple[Tree, Numbers, Numbers, Numbers]:
    """The tree of rows, its tokens and their positions, and where all rows' tokens lie (row i's from starts[i] on).

    keys: what the model reads at each token; rows share what has equal keys.
    """
    stretches: list[tuple[int, int, int]] = []
    tokens: list[Numbers] = []
    depths: list[int] = []
    begins, size = [0], 0
    lines = np.empty(starts[-1], dtype=np.int64)
    for family in families:
        base = len(stretches)
        for row, depth, end, parent, members in _branches(keys, family):
            stretches.append((size, size + end - depth, base + parent if parent >= 0 else -1))
            tokens.append(rows[row][depth:end])
            depths.append(depth - size)
            place = np.arange(size, size + end - depth)
            for i in members:
                lines[starts[i] + depth : starts[i] + end] = place
            size += end - depth
        begins.append(len(stretches))
    borders = np.array(stretches, dtype=np.int64)
    positions = np.arange(size) + np.repeat(depths, borders[:, 1] - borders[:, 0])
    return Tree(borders, np.array(begins)), np.concatenate(tokens), positions, lines


Branch = tuple[
    int, int, int, int, list[int]
]  # a row, from which token to which, the branch before it (-1), the rows that go through


def _branches(rows: Sequence[Numbers], family: list[int]) -> list[Branch]:
    """The stretches of rows that begin alike, each after the one that it goes on from."""
    if len(family) == 1:
        return [(family[0], 0, len(rows[family[0]]), -1, family)]
    # in this order, rows with more in common are closer to each other
    order = sorted(family, key=lambda i: rows[i].astype(">i8").tobytes())
    common = _common([rows[i] for i in order])
    branches: list[Branch] = []
    todo = [
        (0, len(order), 0, -1)
    ]  # rows first .. last in this order, that have `depth` tokens in common with what is behind them
    while todo:
        first, last, depth, parent = todo.pop()
        end = min(common[first : last - 1], default=len(rows[order[first]]))
        if end > depth:
            branches.append((order[first], depth, end, parent, order[first:last]))
            parent = len(branches) - 1
        cuts = [first, *(k + 1 for k in range(first, last - 1) if common[k] == end), last]
        for a, b in reversed(list(zip(cuts[:-1], cuts[1:], strict=True))):
            if len(rows[order[b - 1]]) > end:  # else nothing is left of it
                todo.append((a, b, end, parent))
    return branches


def _common(rows: list[Numbers]) -> list[int]:
    """How many tokens each begins with as the one after it does."""
    lengths = np.array([len(row) for row in rows])
    table = np.full((len(rows), lengths.max() + 1), -1)
    table[np.arange(table.shape[1]) < lengths[:, None]] = np.concatenate(rows)
    apart = table[1:] != table[:-1]
    apart[:, -1] = True
    common: list[int] = np.minimum(apart.argmax(1), np.minimum(lengths[1:], lengths[:-1])).tolist()
    return common
