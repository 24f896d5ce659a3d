"""Attention over packs on a CPU: the same as attention over each row by itself, values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import numbers
from torch import Tensor

from burnish.core.randomness import generator
from burnish.forward import cpu_attention
from burnish.forward.outputs import _lines
from burnish.forward.packing import Packed, pack

CPU = torch.device("cpu")


def normal(*shape: int, what: str) -> Tensor:
    return torch.from_numpy(generator("varlen", what).standard_normal(shape))


def plainly(q: Tensor, k: Tensor, v: Tensor, packed: Packed, lengths: list[int], scale: float, window: int) -> Tensor:
    """Row after row, each query over its own keys; what rows share is the same for all of them."""
    out = torch.zeros_like(q)
    group = q.shape[1] // k.shape[1]
    for row, length in enumerate(lengths):
        at = torch.from_numpy(packed.places(np.full(length, row), np.arange(length)))
        keys, values = (x[at].repeat_interleave(group, 1) for x in (k, v))
        back = torch.arange(length)[:, None] - torch.arange(length)
        scores = torch.einsum("qhd,khd->hqk", q[at], keys) * scale
        chances = scores.masked_fill((back < 0) | (back >= window), -torch.inf).softmax(-1)
        out = out.index_copy(0, at, torch.einsum("hqk,khd->qhd", chances, values))
    return out


@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("sizes", [(128, 1 << 20), (3, 40)])  # as they are; and so small that everything is cut
def test_a_pack_attends_as_its_rows_do(
    heads: int, kv_heads: int, shared: bool, window: int | None, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if shared and window is not None:
        pytest.skip("packs with shared beginnings are shorter than a window")
    monkeypatch.setattr(cpu_attention, "QUERIES", sizes[0])
    monkeypatch.setattr(cpu_attention, "SCORES", sizes[1])
    beginnings = [torch.arange(n) + 10 * n for n in (4, 9, 1)]
    rows = [
        torch.cat([b, torch.arange(n)])
        for b, more in zip(beginnings, ((1, 7, 150), (2,), (3, 3)), strict=True)
        for n in more
    ]
    asked = [4, 4, 4, 9, 1, 1]
    packed = pack(numbers(rows), asked if shared else None, CPU)
    n = len(packed.tokens)
    q, k, v = (normal(n, h, 8, what=f"{i}").requires_grad_() for i, h in enumerate((heads, kv_heads, kv_heads)))
    d = normal(n, heads, 8, what="d")
    found = cpu_attention.attend(q, k, v, packed, 0.3, window)
    wanted = plainly(q, k, v, packed, list(map(len, rows)), 0.3, window or 1 << 30)
    assert torch.allclose(found, wanted, atol=1e-12)
    for mine, theirs in zip(
        torch.autograd.grad(found, (q, k, v), d), torch.autograd.grad(wanted, (q, k, v), d), strict=True
    ):
        assert torch.allclose(mine, theirs, atol=1e-11)


def test_what_many_replies_ask_about_gets_the_same_gradient_every_time() -> None:
    """The sum over a group's replies of the gradient at the end of their prompt must not depend on which thread comes
    first.
    """
    states = normal(400, 96, what="states").float().requires_grad_()
    places = generator("varlen", "places").integers(0, 40, 2000)
    d = normal(2000, 96, what="of places").float()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, *others = (torch.autograd.grad(_lines(states, places), states, d)[0] for _ in range(40))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(first, other) for other in others)
