"""Buckets of gradients that ranks add up at once: every tensor is in one, whatever the last one holds."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from burnish.models import ranks
from burnish.models.ranks import _at_once, _buckets

BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "BUCKET", 10)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([4, 4, 4], [[4, 4], [4]]),
        ([4, 6, 1], [[4, 6], [1]]),
        ([11, 3], [[11], [3]]),
        ([3, 11], [[3], [11]]),
        ([3, 25, 3, 3], [[3], [25], [3, 3]]),
        ([7], [[7]]),
        ([], []),
    ],
)
def test_each_tensor_is_in_one_bucket(sizes: list[int], expected: list[list[int]]) -> None:
    """At most 10 numbers together; a tensor of more is alone, and so is what is left at the end."""
    tensors = [torch.zeros(size) for size in sizes]
    found = list(_buckets(tensors))
    assert [[t.numel() for t in bucket] for bucket in found] == expected
    assert [id(t) for bucket in found for t in bucket] == [id(t) for t in tensors]


def test_each_tensor_is_sent_by_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four tensors of two ranks; the third rank owns none. A bucket holds those of one owner."""
    sent: list[tuple[list[int], int]] = []
    monkeypatch.setattr(ranks.Ranks, "connected", True)
    monkeypatch.setattr(ranks, "_at_once", lambda some, how: sent.append(([id(t) for t in some], how.keywords["src"])))
    a, b, c, d = (torch.zeros(2) for _ in range(4))
    ranks.Ranks(1, 3).spread([a, b, c, d], [0, 1, 0, 1])
    assert sent == [([id(a), id(c)], 0), ([id(b), id(d)], 1)]


def test_number_formats_are_not_mixed() -> None:
    tensors = [torch.zeros(2), torch.zeros(2, dtype=BF16), torch.zeros(2, dtype=BF16), torch.zeros(2)]
    assert [len(bucket) for bucket in _buckets(tensors)] == [1, 2, 1]


def test_what_comes_of_an_exchange_is_in_each_tensor() -> None:
    tensors = [torch.arange(6.0).view(2, 3), torch.tensor(7.0), torch.arange(4.0).view(2, 2).T]
    wanted = [2 * t for t in tensors]

    def doubled(flat: Tensor) -> None:
        flat.mul_(2)

    for bucket in _buckets(tensors):
        _at_once(bucket, doubled)
    assert all(torch.equal(t, w) for t, w in zip(tensors, wanted, strict=True))
