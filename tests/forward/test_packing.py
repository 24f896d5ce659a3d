"""Micro-batches are full, hold every row once and never exceed the budget; replies to one prompt stay together."""

from __future__ import annotations

import random

import pytest
import torch

from burnish.core.types import Trace, Turn
from burnish.learn.batch import Filling, Micro, Row, micro_batches


def row(group: int, reply: int, prompt: Turn) -> Row:
    trace = Trace((prompt, Turn(torch.zeros(reply, dtype=torch.long), "policy", parent=prompt)))
    return Row(trace, group, len(trace), {}, {})


def rows_of(lengths: list[int], samples: int = 1) -> list[Row]:
    """Rows of these lengths, after prompts of 40 tokens that `samples` rows share."""
    prompts = [Turn(torch.zeros(40, dtype=torch.long), "task") for _ in range(len(lengths) // samples + 1)]
    return [row(i // samples, length - 40, prompts[i // samples]) for i, length in enumerate(lengths)]


def skewed(count: int, seed: int = 0) -> list[int]:
    """Lengths like those of preference pairs: most are short, a few fill most of a pack."""
    rng = random.Random(seed)
    return [min(1000, 60 + int(rng.expovariate(1 / 250))) for _ in range(count)]


def check(found: list[Micro], rows: list[Row], budget: int, packed: bool) -> list[int]:
    assert sorted(id(r) for micro in found for r in micro.rows) == sorted(map(id, rows))
    sizes = [Filling(packed, micro.rows).tokens for micro in found]
    assert sizes == [micro.tokens for micro in found] == sorted(sizes, reverse=True)
    assert all(size <= budget or len(micro.rows) == 1 for size, micro in zip(sizes, found, strict=True))
    return sizes


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("budget", [900, 1024, 4096])
def test_every_row_is_in_one_batch_within_the_budget(budget: int, packed: bool) -> None:
    for seed in range(5):
        rows = rows_of(skewed(100, seed))
        check(micro_batches([Micro((r,)) for r in rows], budget, packed), rows, budget, packed)


def test_packs_are_full() -> None:
    """64 rows, 1,024 tokens a pack: next fit, which only looks at the last pack, fills 80% of them."""
    full = needed = 0
    for seed in range(10):
        rows = rows_of(skewed(64, seed))
        sizes = check(micro_batches([Micro((r,)) for r in rows], 1024), rows, 1024, True)
        full, needed = full + 1024 * len(sizes), needed + sum(sizes)
    assert needed / full > 0.93


def test_by_hand() -> None:
    """700, 600, 300, 300 and 90 in packs of 1,000: 700 with 300, and 600 with 300 and 90."""
    rows = rows_of([300, 700, 90, 600, 300])
    found = micro_batches([Micro((r,)) for r in rows], 1000)
    assert [[r.length for r in micro.rows] for micro in found] == [[700, 300], [600, 300, 90]]


def test_rows_of_one_prompt_share_it() -> None:
    """Eight replies of 60 tokens to a prompt of 40: 520 tokens, so that a pack of 1,100 holds two groups."""
    rows = rows_of([100] * 48, samples=8)
    found = micro_batches([Micro((r,)) for r in rows], 1100)
    assert [micro.tokens for micro in found] == [1040] * 3
    for micro in found:
        groups = [r.group for r in micro.rows]
        assert groups == sorted(groups) and len(set(groups)) == 2
