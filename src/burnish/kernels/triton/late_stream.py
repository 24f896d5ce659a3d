"""A decode step's residual stream in our own matmuls (kernels/triton/matmul.py): decoders like Llama's that are not
wide. Norms are divided late, in the product that follows them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from burnish.forward.packing import KEYS
from burnish.kernels.triton import matmul
from burnish.kernels.triton.adapted import padded
from burnish.kernels.triton.adapters import Adapter
from burnish.kernels.triton.cublas import product
from burnish.kernels.triton.gate import gate_rows
from burnish.kernels.triton.kv_write import Newest, Turn
from burnish.kernels.triton.launch import SYSTEMS, chained, multiprocessors
from burnish.kernels.triton.norm import APART, add_norm
from burnish.kernels.triton.weights import Layer

PART: int = matmul.PART.value
WHOLE = 128  # rows: of so many, or half as many, a product's blocks are


@dataclass(frozen=True)
class Launch:
    """How to launch a product: how many programs, the rows, weights and adapter that they read, in what blocks."""

    grid: tuple[int, int]
    rows: TensorDescriptor
    weights: tuple[Any, ...]
    options: dict[str, Any]


class LateStream:
    """What flows through the layers of a decoder while rows add a token each: x, and z, squares for the next norm."""

    def __init__(self, tokens: Tensor, table: Tensor, norm: Tensor, eps: float) -> None:
        m, width = len(tokens), table.shape[1]
        self.x = torch.empty(m, width, dtype=table.dtype, device=table.device)
        self.z = self.room(width)
        parts = triton.cdiv(width, PART)
        self.squares = torch.empty(m, parts, dtype=torch.float32, device=table.device)
        self.norm, self.eps, self.wide = norm, eps, width > OWN_GATE
        padded_parts = triton.next_power_of_2(parts)
        self.parts = {"P": parts, "PP": padded_parts, "LEVELS": padded_parts.bit_length() - 1}
        matmul.begin_kernel[(m,)](
            tokens, table, norm, self.x, self.z, self.squares, width, parts,
            BK=triton.next_power_of_2(width), num_warps=2, **APART,
        )  # fmt: skip

    def room(self, width: int) -> Tensor:
        """Where rows are written for a product to read: whole blocks, since copies beyond an end are slow."""
        rows = triton.cdiv(len(self.x), WHOLE) * WHOLE
        return torch.empty(rows, width, dtype=self.x.dtype, device=self.x.device)

    def normed(self, weight: Tensor, bias: Tensor | None, adapter: Adapter | None = None) -> tuple[Tensor, None]:
        """[M, N]: norm(x) weight^T + bias, with an adapter beside it; nothing is still to be added (stream.py)."""
        (m, width), n = self.x.shape, len(weight)
        out = torch.empty(m, n, dtype=weight.dtype, device=weight.device)
        how = _how(self.z, m, weight, 1, self.wide, adapter)
        matmul.normed_kernel[how.grid](
            how.rows, self.squares, *how.weights, weight if bias is None else bias, out, m, n, self.eps,
            K=width, BIAS=bias is not None, **self.parts, **how.options,
        )  # fmt: skip
        return out, None

    def heads(
        self,
        weight: Tensor,
        bias: Tensor | None,
        own: tuple[Tensor, Tensor],
        newest: Newest,
        turn: Turn,
        adapter: Adapter | None = None,
    ) -> Tensor:
        """Rotated queries [M, heads, 1, D] of norm(x); keys and values go into their own slots, as `kv_write.place`
        does it."""
        (m, width), n, (_, shared, _, d) = self.x.shape, len(weight), own[0].shape
        queries = n // d - 2 * shared
        out = torch.empty(m, queries, 1, d, dtype=weight.dtype, device=weight.device)
        how = _how(self.z, m, weight, 1, self.wide, adapter, d // 2)
        sizes = [queries * d, shared * d, shared * d]
        _, k_first, v_first = (0, 0, 0) if adapter is None else adapter.firsts(sizes)
        matmul.heads_kernel[how.grid](
            how.rows, self.squares, *how.weights, weight if bias is None else bias, out,
            *own, newest.count, newest.root_length, newest.slot, turn.cos, turn.sin,
            m, n, self.eps, own[0].stride(0), own[0].stride(1), k_first, v_first,
            QUERIES=queries, SHARED=shared, HALF=d // 2, BLOCK=KEYS, K=width, BIAS=bias is not None,
            **self.parts, **how.options,
        )  # fmt: skip
        return out

    def gated(self, weight: Tensor, adapter: Adapter | None = None) -> Tensor:
        """[.., N]: silu(gate) * up of norm(x), for a weight [2 N, K]."""
        (m, width), n = self.x.shape, len(weight) // 2
        out = self.room(n)
        if self.wide:
            return self._gated_by_library(weight, adapter, out)
        how = _how(self.z, m, weight, 2, self.wide, adapter)
        matmul.gated_kernel[how.grid](
            how.rows, self.squares, *how.weights, out, m, n, self.eps, K=width, **self.parts, **how.options
        )
        return out

    def _gated_by_library(self, weight: Tensor, adapter: Adapter | None, out: Tensor) -> Tensor:
        z, width = self.z[: len(self.x)], self.x.shape[1]
        both = product(z, weight, None, True) if adapter is None else adapter.add(*adapter.beside(z, weight, None))
        return gate_rows(both, self.squares, self.parts, width, self.eps, out)

    def through_mlp(self, layer: Layer, norm: Tensor) -> None:
        """x += mlp(norm(x)); the norm is the one that follows."""
        gated = self.gated(layer.gate_and_up, layer.adapters.gate_and_up)
        self.add(gated, layer.down, norm, None, layer.adapters.down)

    def add(self, y: Tensor, weight: Tensor, norm: Tensor, post: object = None, adapter: Adapter | None = None) -> None:
        """x += y weight^T for y in a `room`, with an adapter beside it; the norm is the one that follows; y itself has
        none."""
        (m, n), width = self.x.shape, y.shape[1]
        how = _how(y, m, weight, 1, self.wide, adapter)
        matmul.added_kernel[how.grid](
            how.rows, *how.weights, self.x, norm, self.z, self.squares, m, n,
            K=width, P=self.parts["P"], **how.options,
        )  # fmt: skip
        self.norm = norm

    def end(self) -> Tensor:
        """[M, H]: norm(x)."""
        return add_norm(self.x, None, self.norm, self.eps)


# Rows and columns of a product's blocks, how far it goes at once, warps; for one product, and for gate and up in one.
_BLOCKS = {
    1: ((64, 16, 128, 4), (64, 32, 128, 4), (64, 64, 128, 4), (128, 64, 128, 8)),
    2: ((64, 16, 128, 4), (64, 32, 128, 4), (64, 64, 64, 4), (128, 64, 64, 8)),
}
_MANY = (64, 64, 64, 4)  # where not even the largest is large enough: three to a multiprocessor
_STAGES = 5, 6  # of the others, at least, where there is room; the second of wide decoders
OWN_GATE = 1024  # hidden size up to which a decoder is narrow: gate and up are our own product


def _how(x: Tensor, m: int, weight: Tensor, parts: int, wide: bool, adapter: Adapter | None, half: int = 0) -> Launch:
    """How to launch a product of x [M, K], in a `room`, and a weight [parts * N, K].

    half: the size of half a head, where a block is to hold numbers of one head and their partners
    """
    k, n = x.shape[1], len(weight) // parts
    ranks = 0 if adapter is None else padded(adapter.widest if half else adapter.rank)
    options: dict[str, Any] = dict(_blocks(m, n, parts, ranks, x.element_size(), wide, x.device))
    at_once, of = parts, n
    if half:
        options["BN"] = min(options["BN"] // 2, half)
        at_once, of, n = 2, half, n // 2
    grid = triton.cdiv(m, options["BM"]), triton.cdiv(n, options["BN"])
    step = options["BK"]
    rows = TensorDescriptor(x, list(x.shape), [k, 1], [options["BM"], step])
    columns = TensorDescriptor(weight, [len(weight) // of, of, k], [of * k, k, 1], [at_once, options["BN"], step])
    options |= {**chained(x), **APART}
    if adapter is None:  # nothing reads what stands in the adapter's place
        return Launch(grid, rows, (columns, weight, rows, weight), options | {"LORA": False, "RANKS": 16, "RP": 16})
    a = TensorDescriptor(adapter.a, list(adapter.a.shape), [k, 1], [ranks, step])
    options |= {"LORA": True, "RANKS": adapter.rank, "RP": ranks}
    return Launch(grid, rows, (columns, weight, a, adapter.wide), options)


@cache
def _blocks(
    rows: int, columns: int, parts: int, ranks: int, size: int, wide: bool, device: torch.device
) -> dict[str, int]:
    """The smallest blocks of which the device can give each a multiprocessor of its own, for numbers of so many bytes.

    They take more than half of its memory: with less, layers took 1 to 3 us longer. It seems that two then come to one
    multiprocessor while others have none, since the kernel before is still there when they are placed.
    """
    processors, room = multiprocessors(device)
    room -= SYSTEMS
    fit = (b for b in _BLOCKS[parts] if triton.cdiv(rows, b[0]) * triton.cdiv(columns, b[1]) <= processors)
    found = next(fit, None)
    m, n, k, warps = found or _MANY
    stage = size * k * (m + n * parts + ranks)
    stages = min(max(_STAGES[wide], room // 2 // stage + 1), (room - 4096) // stage) if found else room // 3 // stage
    return {"BM": m, "BN": n, "BK": k, "num_warps": warps, "num_stages": max(1, stages)}
