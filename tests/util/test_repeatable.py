"""Matmuls are reproducible bit for bit, independent of memory alignment."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from burnish.util import mkl


def elsewhere(x: Tensor, by: int) -> Tensor:
    """The same numbers, `by` places after a line of the cache begins."""
    room = torch.empty(x.numel() + 32)
    first = -(room.data_ptr() // 4) % 16 + by
    return room[first : first + x.numel()].view(x.shape).copy_(x)


@pytest.mark.skipif("MKL_CBWR" not in os.environ, reason="Intel's processors need not be told")
@pytest.mark.parametrize("rows", [1, 2, 5, 16])
@pytest.mark.parametrize("inputs", [8, 32, 96])
@pytest.mark.parametrize("outputs", [4, 48, 64])
def test_a_product_does_not_depend_on_where_its_numbers_lie(rows: int, inputs: int, outputs: int) -> None:
    dice = torch.Generator().manual_seed(0)
    x, weight = torch.randn(rows, inputs, generator=dice), torch.randn(outputs, inputs, generator=dice)
    wanted = elsewhere(x, 0) @ elsewhere(weight, 0).t()
    for a in (0, 1, 4, 8):
        for b in (0, 1, 4, 8):
            assert torch.equal(elsewhere(x, a) @ elsewhere(weight, b).t(), wanted)


@pytest.mark.parametrize(
    ("maker", "before", "after"),
    [
        ("vendor_id : AuthenticAMD", None, "AUTO"),
        ("vendor_id : GenuineIntel", None, None),
        ("vendor_id : AuthenticAMD", "COMPATIBLE", "COMPATIBLE"),
    ],
)
def test_products_are_settled_where_they_need_it(
    maker: str, before: str | None, after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mkl, "_maker", lambda: maker)
    monkeypatch.delenv("MKL_CBWR", raising=False)
    if before is not None:
        monkeypatch.setenv("MKL_CBWR", before)
    mkl.make_mkl_reproducible()
    assert os.environ.get("MKL_CBWR") == after
