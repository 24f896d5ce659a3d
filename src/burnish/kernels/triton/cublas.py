"""The matmuls of torch's library, and how to have them add up in the order of our own kernels.

A bf16 product whose terms are added one after the other has the same bits in the library's kernels and in ours, for two
rows and for thousands. The library cuts a long sum into parts where there are few rows ("split-K"), unless it is set
not to. For a single row it has a kernel of another kind, with another order: there the row is doubled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def in_order() -> Iterator[None]:
    """bf16 products on a GPU add up their terms one after the other."""
    matmul, before = torch.backends.cuda.matmul, torch.backends.cuda.preferred_blas_library()
    allowed = torch._C._get_cublas_allow_bf16_reduced_precision_reduction()
    torch.backends.cuda.preferred_blas_library("cublaslt")
    matmul.allow_bf16_reduced_precision_reduction = False, False
    try:
        yield
    finally:
        matmul.allow_bf16_reduced_precision_reduction = allowed
        torch.backends.cuda.preferred_blas_library(before)


def product(x: Tensor, weight: Tensor, bias: Tensor | None, ordered: bool) -> Tensor:
    """x weight^T + bias."""
    if not ordered or not x.is_cuda:
        return nn.functional.linear(x, weight, bias)
    with in_order():
        return nn.functional.linear(x.repeat(2, 1) if len(x) == 1 else x, weight, bias)[: len(x)]


def add_product(made: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """made + x weight^T, added up in order: in place where there are several rows."""
    if not made.is_cuda:
        return made.addmm_(x, weight.t())
    with in_order():
        if len(made) == 1:
            return torch.addmm(made.repeat(2, 1), x.repeat(2, 1), weight.t())[:1]
        return made.addmm_(x, weight.t())
