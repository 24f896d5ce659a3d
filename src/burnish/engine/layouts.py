"""How tokens attend to each other in the engine: prefill of prompts, and decode steps of one token a row on a CPU."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from burnish.engine.kv_cache import KVCache, in_steps
from burnish.forward.cpu_attention import FEWEST_KEYS
from burnish.forward.packing import Packed
from burnish.forward.prefix_tree import Numbers

NO_WINDOW = 1 << 30  # the window of a layer that has none


@dataclass(frozen=True)
class Prefill:
    """Prompts: they attend as a pack does, and their keys and values are written to `places` of the pool."""

    packed: Packed
    cache: KVCache
    places: Tensor

    def keep(self, module: nn.Module, k: Tensor, v: Tensor) -> None:
        """Write keys and values [N, heads, D] of the prompts in one layer."""
        self.cache.write(module, self.places, k, v)

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        self.keep(module, k[0].transpose(0, 1), v[0].transpose(0, 1))
        return self.packed.attend(module, q, k, v, scale, window)


@dataclass(frozen=True)
class Roots:
    """Which rows share which prompt ("root").

    members           [roots, most] the rows of each root; padding repeats the first
    back              [rows] where each row lies in `members`, flattened
    lengths, longest  the lengths of the roots, and how many tokens each has room for
    root              [rows] the number of each row's root
    """

    members: Tensor
    back: Tensor
    lengths: Tensor
    longest: int
    root: Numbers

    @classmethod
    def among(cls, rows: list[list[int]], lengths: list[int]) -> Roots:
        """From the rows of each root, and its length."""
        most, number = max(map(len, rows)), sum(map(len, rows))
        back, root = torch.zeros(number, dtype=torch.long), np.zeros(number, dtype=np.int64)
        for k, family in enumerate(rows):
            back[family] = torch.arange(len(family)) + k * most
            root[family] = k
        members = torch.tensor([family + family[:1] * (most - len(family)) for family in rows])
        return cls(members, back, torch.tensor(lengths), in_steps(max(lengths)), root)


@dataclass
class CpuDecode:
    """One token a row on a CPU, row i in slot i: attention to own tokens in one call, to shared roots in another.

    own          [rows]: how many tokens of its own each row has in the cache
    root_length  [rows]: how long its root is (0: none)
    """

    cache: KVCache
    own: Tensor
    root_length: Tensor
    roots: Roots | None
    packed: None = None
    used: int = field(init=False)
    _masks: dict[int, tuple[Tensor, Tensor | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.used = max(int(self.own.max()) + 1, FEWEST_KEYS)
        self.rows = torch.arange(len(self.own))

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        kv = self.cache.at(module)
        n, heads, _, d = q.shape
        shared = k.shape[1]
        kv.own_k[self.rows, :, self.own] = k[:, :, 0]
        kv.own_v[self.rows, :, self.own] = v[:, :, 0]
        own_mask, root_mask = self._mask(NO_WINDOW if window is None else window, q.dtype)
        q = q.reshape(n, shared, heads // shared, d)
        own_k, own_v = kv.own_k[:n, :, : self.used], kv.own_v[:n, :, : self.used]
        out, lse = _attend_to_own(q, own_k, own_v, own_mask, scale, self.roots is not None)
        if lse is not None:
            assert kv.roots_k is not None and kv.roots_v is not None
            out = self._join(q, kv.roots_k, kv.roots_v, out, lse, root_mask, scale)
        return out.reshape(n, 1, heads, d)

    def _join(
        self, q: Tensor, roots_k: Tensor, roots_v: Tensor, out: Tensor, lse: Tensor, mask: Tensor | None, scale: float
    ) -> Tensor:
        """Attention over a row's root and its own tokens together, from each alone."""
        assert self.roots is not None
        n, shared, group, d = q.shape
        roots, most = self.roots.members.shape
        queries = q[self.roots.members].transpose(1, 2).reshape(roots, shared, most * group, d)
        seen, weight = _attend(queries, roots_k, roots_v, mask, scale)
        seen = seen.view(roots, shared, most, group, d).transpose(1, 2).reshape(-1, shared, group, d)[self.roots.back]
        weight = weight.view(roots, shared, most, group).transpose(1, 2).reshape(-1, shared, group)[self.roots.back]
        return torch.lerp(out, seen, torch.sigmoid(weight - lse)[..., None])

    def _mask(self, window: int, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Additive masks: of own tokens [rows, 1, 1, used], and of roots [roots, 1, 1, longest]."""
        if window not in self._masks:
            t = torch.arange(self.used)
            gone = self.own + self.root_length + 1 - window  # positions that have left the window
            hidden = (t > self.own[:, None]) | (t < (gone - self.root_length)[:, None])
            own = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)[:, None, None]
            self._masks[window] = own, self._root_mask(window, gone, dtype)
        return self._masks[window]

    def _root_mask(self, window: int, gone: Tensor, dtype: torch.dtype) -> Tensor | None:
        if self.roots is None:
            return None
        longest = self.roots.longest
        t = torch.arange(longest)
        hidden = (t >= self.roots.lengths[:, None])[:, None, None]
        if window < longest + self.used:
            raise ValueError("rows that share a prompt are longer than the model's window; prefill their prompts apart")
        if not bool(hidden.any()):
            return None
        return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """Attention of q [B, heads, T, D] over k, v [B, heads, S, D], and its log-sum-exp [B, heads, T]."""
    if mask is not None:
        mask = mask.expand(-1, -1, q.shape[2], -1)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, False, attn_mask=mask, scale=scale
    )
    return out, lse


def _attend_to_own(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, with_lse: bool
) -> tuple[Tensor, Tensor | None]:
    """The same as two batched matmuls, which for one token a row are faster than the kernel; keys lie transposed in
    memory.

    In training (forward/cpu_attention.py) the matmuls are larger. Their bits are the same if there is more than one
    query here.
    """
    n, heads, t, d = q.shape
    if t == 1:
        out, lse = _attend_to_own(q.expand(n, heads, 2, d), k, v, mask, scale, with_lse)
        return out[:, :, :1], lse if lse is None else lse[:, :, :1]
    scores = torch.bmm((q * scale).view(n * heads, t, d), k.flatten(0, 1).transpose(1, 2)).view(n, heads, t, -1)
    scores.add_(mask)
    lse = torch.logsumexp(scores, -1) if with_lse else None
    chances = torch.softmax(scores, -1) if lse is None else scores.sub_(lse[..., None]).exp_()
    return torch.bmm(chances.view(n * heads, t, -1), v.flatten(0, 1)).view(n, heads, t, d), lse
