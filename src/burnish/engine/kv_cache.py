"""The KV cache: slots for the rows' own tokens, a pool for the prompts that they share; and how much memory it may
take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from burnish.forward.module import text_config
from burnish.util.host_memory import host_memory


def on_gpu(device: torch.device) -> bool:
    """Whether rows are decoded as on a GPU: by CUDA graphs of fixed sizes, finished rows seen one step late."""
    return device.type == "cuda"


KEPT = 8 << 30  # bytes up to which a GPU's KV cache stays between calls, with its CUDA graphs, at least (`kept`)
STEP = 32  # on a CPU the tokens of a slot are a multiple of it: matmuls read so many keys at once


def kept(device: torch.device) -> int:
    """Bytes up to which a KV cache stays between calls; a larger one is freed. On a large GPU an eighth of it."""
    whole = torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0
    return max(KEPT, whole // 8)


def in_steps(tokens: int, step: int = STEP) -> int:
    """Rounded up."""
    return -(-tokens // step) * step


@dataclass
class LayerKV:
    """One attention layer's keys and values.

    own_k, own_v    [slots + 1, heads, capacity, D]: each row's own tokens; the last slot is a scratch slot
    pool_k, pool_v  [T + 1, heads, D]: prompts, each a run of tokens; the last place is scratch
    roots_k, roots_v  [roots, heads, longest, D]: on a CPU, the prompts that running rows share, side by side

    For the C kernels, own_k and roots_k are [.., tokens / P, D, P] (`in_panels`).
    """

    own_k: Tensor
    own_v: Tensor
    pool_k: Tensor
    pool_v: Tensor
    roots_k: Tensor | None = None
    roots_v: Tensor | None = None


class KVCache:
    """All layers of one model. A layer's tensors are allocated when its first prompt arrives: only it knows their
    shape.

    layers      by attention module, in the order in which the layers were first called
    panel       how many keys lie in a panel, for the C kernels; else 0
    transposed  whether keys lie transposed in memory: on a CPU a matmul with them is then several times faster
    on_change   called when tensors of the cache are replaced, whose addresses kernels may hold
    """

    def __init__(self, plan: Plan, panel: int = 0, transposed: bool = True) -> None:
        self.slots, self.capacity, self.pool = plan.slots, plan.capacity, plan.pool
        self.panel, self.transposed = panel, transposed
        self.layers: dict[nn.Module, LayerKV] = {}
        self.on_change: Callable[[], None] = lambda: None

    def at(self, module: nn.Module) -> LayerKV:
        """The layer of this attention module, to which prompts were written before."""
        return self.layers[module]

    def layer(self, module: nn.Module, k: Tensor, v: Tensor) -> LayerKV:
        """The layer of this attention module; k, v: [N, heads, D], something to write to it."""
        keys_values = self.layers.get(module)
        if keys_values is None:
            made = torch.empty if self.panel else torch.zeros  # the C kernels read nothing that was not written
            own = [
                made(self.slots + 1, x.shape[1], self.capacity, x.shape[-1], dtype=x.dtype, device=x.device)
                for x in (k, v)
            ]
            if self.panel:
                own[0] = own[0].view(self.slots + 1, k.shape[1], -1, k.shape[-1], self.panel)
            elif self.transposed:
                own[0] = own[0].view(self.slots + 1, k.shape[1], k.shape[-1], self.capacity).transpose(2, 3)
            pool = [x.new_zeros(self.pool + 1, x.shape[1], x.shape[-1]) for x in (k, v)]
            keys_values = self.layers[module] = LayerKV(*own, *pool)
        return keys_values

    def write(self, module: nn.Module, places: Tensor, k: Tensor, v: Tensor) -> None:
        """Write prompts' keys and values [N, heads, D] to these places of the pool."""
        layer = self.layer(module, k, v)
        layer.pool_k.index_copy_(0, places, k)
        layer.pool_v.index_copy_(0, places, v)

    def move(self, source: Tensor, to: Tensor) -> None:
        """Copy the content of slots `source` to slots `to`."""
        for layer in self.layers.values():
            layer.own_k[to] = layer.own_k[source]
            layer.own_v[to] = layer.own_v[source]

    def copy_prompts(self, slots: Tensor, places: Tensor) -> None:
        """Copy the prompts at places [rows, longest] of the pool to the beginnings of these slots."""
        longest = places.shape[1]
        for layer in self.layers.values():
            k, v = layer.pool_k[places], layer.pool_v[places]
            layer.own_v[slots, :, :longest] = v.transpose(1, 2)
            if self.panel:
                layer.own_k[slots, :, : longest // self.panel] = in_panels(k, self.panel)
            else:
                layer.own_k[slots, :, :longest] = k.transpose(1, 2)

    def gather_roots(self, places: Tensor) -> None:
        """Copy the prompts at places [roots, longest] of the pool side by side."""
        self.on_change()
        for layer in self.layers.values():
            k, v = layer.pool_k[places], layer.pool_v[places]
            layer.roots_v = v.transpose(1, 2).contiguous()
            layer.roots_k = (in_panels(k, self.panel) if self.panel else k.transpose(1, 2)).contiguous()

    def release(self) -> None:
        """Free the memory."""
        self.on_change()
        self.layers = {}


def in_panels(k: Tensor, panel: int) -> Tensor:
    """[rows, heads, tokens / panel, D, panel] from keys [rows, tokens, heads, D]."""
    return torch.unflatten(k, 1, (-1, panel)).permute(0, 3, 1, 4, 2)


class Pool:
    """Which tokens of the pool are free: first fit, neighbours joined again when they are given back."""

    def __init__(self, size: int) -> None:
        self.free: list[tuple[int, int]] = [(0, size)]  # (start, length), in order

    def take(self, length: int) -> int | None:
        """The start of a free run, or None."""
        for i, (start, room) in enumerate(self.free):
            if room >= length:
                self.free[i : i + 1] = [(start + length, room - length)] if room > length else []
                return start
        return None

    def give(self, start: int, length: int) -> None:
        runs = sorted([*self.free, (start, length)])
        self.free = [runs[0]]
        for at, room in runs[1:]:
            last, before = self.free[-1]
            if last + before == at:
                self.free[-1] = (last, before + room)
            else:
                self.free.append((at, room))


@dataclass(frozen=True)
class Plan:
    """How many rows are decoded together, how far each may grow, how many prompt tokens are held."""

    slots: int
    capacity: int
    pool: int

    def holds(self, other: Plan) -> bool:
        """Whether what was made for this plan serves the other."""
        return self.slots >= other.slots and self.capacity >= other.capacity and self.pool >= other.pool

    def joined(self, other: Plan, tokens: int) -> Plan:
        """One that holds both, if that has no more than so many tokens; else this one."""
        both = Plan(max(self.slots, other.slots), max(self.capacity, other.capacity), max(self.pool, other.pool))
        return both if both.slots * both.capacity + both.pool <= tokens else self


def plan(most: int, reply: int, prompts: list[int], per_token: int, budget: int, step: int = 1) -> Plan:
    """What fits `budget` bytes at `per_token` bytes a token; a request that cannot fit alone is refused.

    reply: the longest that a slot must hold; it gets a multiple of `step`.
    """
    capacity = in_steps(reply, step)
    tokens, longest = budget // per_token, max(prompts)
    pool = min(sum(prompts), max(longest, tokens // 2))
    slots = min(most, (tokens - pool) // capacity)
    if slots < 1:
        need = (capacity + longest) * per_token
        raise ValueError(
            f"a reply of up to {reply} tokens after a prompt of {longest} needs {need / 2**30:.2f} GiB of keys and "
            "values, "
            f"but the budget is {budget / 2**30:.2f} GiB; lower --max-new-tokens or raise --kv-gib"
        )
    return Plan(slots, capacity, pool)


def bytes_per_token(model: nn.Module, itemsize: int) -> int:
    """Keys and values of one token in all layers."""
    config = text_config(model)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * size * itemsize)


def default_budget(device: torch.device) -> int:
    """40% of a GPU's free memory, or a quarter of the machine's."""
    if device.type == "cuda":
        return int(0.4 * torch.cuda.mem_get_info(device)[0])
    return host_memory() // 4
