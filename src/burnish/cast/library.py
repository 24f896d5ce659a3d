"""The matrix products of torch's library, in the order of our own kernels: no sum is cut into parts that are added up at the end.

A bf16 product whose terms are added one after the other has the same bits in the library's kernels and in ours, for one row
and for thousands. The library cuts long sums of small products ("split-K") unless it is told not to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def in_order(on: bool) -> Iterator[None]:
    """Products of half precision on a GPU add up in order."""
    if not on:
        yield
        return
    matmul, before = torch.backends.cuda.matmul, torch.backends.cuda.preferred_blas_library()
    allowed = torch._C._get_cublas_allow_bf16_reduced_precision_reduction()
    torch.backends.cuda.preferred_blas_library("cublaslt")
    matmul.allow_bf16_reduced_precision_reduction = False, False
    try:
        yield
    finally:
        matmul.allow_bf16_reduced_precision_reduction = allowed
        torch.backends.cuda.preferred_blas_library(before)


def library(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias."""
    with in_order(x.is_cuda):
        return nn.functional.linear(x, weight, bias)
