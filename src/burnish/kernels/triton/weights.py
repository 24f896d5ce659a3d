"""A spec and the modules that it describes: the weights of each layer, for the kernels.

Whatever a spec says that a module can be asked about is compared here: sizes, windows, the scale of attention, eps and
biases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isclose
from typing import Any

import torch
from torch import Tensor, nn

from burnish.forward.nf4 import Nf4, Nf4Linear
from burnish.kernels.architectures.spec import DecoderSpec, LayerSpec
from burnish.kernels.lora import NotPlain, base_of
from burnish.kernels.triton.adapters import Adapter, LayerAdapters
from burnish.kernels.triton.fused_qkv import First

Weight = Any  # a Tensor; or an Nf4, which is made dense before a product reads it
Mlp = tuple[Tensor | None, Weight, Weight]  # the router, if there is one, gate and up, down


@dataclass(frozen=True)
class Layer:
    """The weights of one layer, and its attention module, under which the KV cache keeps its keys and values.

    heads        [(heads + 2 kv_heads) D, H]: queries, keys and values side by side
    after_*      weights of the norms of what is added to the residual stream; None: there are none
    router       [experts, H]; None: the MLP is dense
    gate_and_up  [2 inner, H], or [experts, 2 width, H];  down [H, inner], or [experts, H, width]
    adapters     LoRA beside its products
    """

    spec: LayerSpec
    attention: Any
    norm: Tensor
    heads: Weight
    bias: Tensor | None
    head_norms: tuple[Tensor, Tensor] | None
    out: Weight
    after_attention: Tensor | None
    second_norm: Tensor
    router: Tensor | None
    gate_and_up: Weight
    down: Weight
    after_mlp: Tensor | None
    adapters: LayerAdapters

    @property
    def quantised(self) -> bool:
        """Whether a matrix of it is in four bits."""
        return any(isinstance(weight, Nf4) for weight in (self.heads, self.out, self.gate_and_up, self.down))


class DenseRoom:
    """Memory for the dense weights of one layer whose own are in four bits: the next layer's take their place.

    Kernels of one stream run one after the other, also in a CUDA graph, so a layer is done when the next one comes.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.places: dict[str, Tensor] = {}

    def dense(self, layer: Layer) -> Layer:
        """The layer with dense weights."""
        return replace(
            layer,
            heads=self._dense("heads", layer.heads),
            out=self._dense("out", layer.out),
            gate_and_up=self._dense("gate_and_up", layer.gate_and_up),
            down=self._dense("down", layer.down),
        )

    def _dense(self, name: str, held: Weight) -> Tensor:
        if not isinstance(held, Nf4):
            dense: Tensor = held
            return dense
        rows, columns = held.shape
        if name not in self.places or self.places[name].numel() < rows * columns:
            self.places[name] = torch.empty(rows * columns, dtype=self.dtype, device=held.packed.device)
        return held.dense(self.dtype, self.places[name][: rows * columns].view(rows, columns))


def layers_of(inner: Any, spec: DecoderSpec) -> list[Layer] | None:
    """The weights of a decoder's layers; None where one of them is not what the spec says, or not for the kernels."""
    d = spec.first.head_dim
    if d < 32 or d & (d - 1) or len(inner.layers) != len(spec.layers):
        return None
    found = [_layer(layer, its, spec.layer_class) for layer, its in zip(inner.layers, spec.layers, strict=True)]
    layers = [layer for layer in found if layer is not None]
    return layers if len(layers) == len(found) else None


def _layer(layer: Any, spec: LayerSpec, layer_class: str) -> Layer | None:
    """What a layer holds; None where it is another, or where an adapter does more than add a product to its own."""
    if type(layer).__name__ != layer_class or not type(layer).__module__.startswith("transformers.models."):
        return None
    attention: Any = layer.self_attn
    first, out = base_of(attention.q_proj), base_of(attention.o_proj)
    if not isinstance(first, First) or not _plain(out):
        return None
    joint, names = first.joint, spec.norms
    inner: Mlp | None = _experts(layer.mlp, spec) if spec.experts else _mlp(layer.mlp)
    try:
        adapters = _adapters(attention, layer.mlp, spec)
    except NotPlain:
        return None
    if inner is None or not _as_said(attention, joint, spec):
        return None
    before, second = _norm(layer, names.before_attention, spec), _norm(layer, names.before_mlp, spec)
    after, after_mlp = _norm(layer, names.after_attention, spec), _norm(layer, names.after_mlp, spec)
    q_norm, k_norm = (_norm(attention, name if spec.head_norms else None, spec) for name in ("q_norm", "k_norm"))
    if before is None or second is None or (spec.head_norms and (q_norm is None or k_norm is None)):
        return None
    if spec.post_norms and (after is None or after_mlp is None):
        return None
    router, gate_and_up, down = inner
    made = Layer(
        spec=spec,
        attention=attention,
        norm=before,
        heads=joint.weight,
        bias=joint.bias,
        head_norms=None if q_norm is None or k_norm is None else (q_norm, k_norm),
        out=_weight(out),
        after_attention=after,
        second_norm=second,
        router=router,
        gate_and_up=gate_and_up,
        down=down,
        after_mlp=after_mlp,
        adapters=adapters,
    )
    return made if _fits(made) else None


def _adapters(attention: Any, mlp: Any, spec: LayerSpec) -> LayerAdapters:
    """The LoRA adapters of a layer; raises NotPlain where they are of another kind, or on experts."""
    if spec.experts and any(hasattr(module, "lora_A") for module in mlp.modules()):
        raise NotPlain
    dense = not spec.experts
    return LayerAdapters(
        heads=_adapter([attention.q_proj, attention.k_proj, attention.v_proj]),
        out=_adapter([attention.o_proj]),
        gate_and_up=_adapter([mlp.gate_proj, mlp.up_proj]) if dense else None,
        down=_adapter([mlp.down_proj]) if dense else None,
    )


def _adapter(projections: list[Any]) -> Adapter | None:
    """The adapters of projections that read one input, behind their weights where there is room for them."""
    first = base_of(projections[0])
    held: Any = first.joint if isinstance(first, First) else first
    whole = getattr(held, "whole", None)
    if whole is not None and (whole.data_ptr() != held.weight.data_ptr() or whole.dtype != held.weight.dtype):
        whole = None  # the weights have been moved since
    return Adapter.of(projections, whole, held.bias)


def _plain(part: Any) -> bool:
    return type(part) in (nn.Linear, Nf4Linear) and part.bias is None


def _weight(part: Any) -> Weight:
    return part.held if isinstance(part, Nf4Linear) else part.weight


def _norm(module: object, name: str | None, spec: LayerSpec) -> Tensor | None:
    """The weight of a module's norm of this name; None where there is none, or where it adds another eps to a mean
    square."""
    norm = None if name is None else getattr(module, name, None)
    if norm is None or (getattr(norm, "variance_epsilon", None) or norm.eps) != spec.eps:
        return None
    weight: Tensor = norm.weight
    return weight


def _as_said(attention: Any, joint: Any, spec: LayerSpec) -> bool:
    """Whether the attention module has the window, the scale, the biases and the norms of heads that the spec says."""
    asks = type(attention).__name__ == "MistralAttention"  # its config for the window, whenever it runs
    window = attention.config.sliding_window if asks else getattr(attention, "sliding_window", None)
    return (
        window == spec.window
        and isclose(attention.scaling, spec.scale)
        and attention.head_dim == spec.head_dim
        and (joint.bias is not None) == spec.biased
        and hasattr(attention, "q_norm") == spec.head_norms
    )


def _mlp(mlp: object) -> Mlp | None:
    gate, down = base_of(getattr(mlp, "gate_proj", None)), base_of(getattr(mlp, "down_proj", None))
    if not isinstance(gate, First) or not _plain(down):
        return None
    return None if gate.joint.bias is not None else (None, gate.joint.weight, _weight(down))


def _experts(mlp: object, spec: LayerSpec) -> Mlp | None:
    """The router, and the experts in two tensors, as transformers keeps them."""
    experts, router = getattr(mlp, "experts", None), getattr(mlp, "gate", None)
    found = getattr(router, "weight", None), getattr(experts, "gate_up_proj", None), getattr(experts, "down_proj", None)
    weights = [w for w in found if isinstance(w, Tensor)]
    if len(weights) < 3 or set(vars(experts)["_parameters"]) != {"gate_up_proj", "down_proj"}:  # no biases
        return None
    assert spec.experts is not None
    count, width, hidden = spec.experts.count, spec.experts.width, spec.hidden
    shapes = [(count, hidden), (count, 2 * width, hidden), (count, hidden, width)]
    return (weights[0], weights[1], weights[2]) if [tuple(w.shape) for w in weights] == shapes else None


def _fits(layer: Layer) -> bool:
    """Whether shapes are those of the spec, and rows of whole 16 bytes, which our matmuls copy."""
    spec = layer.spec
    heads, keys, d = spec.of_heads
    shapes = [(layer.heads, ((heads + 2 * keys) * d, spec.hidden)), (layer.out, (spec.hidden, heads * d))]
    if layer.router is None:
        shapes += [(layer.gate_and_up, (2 * spec.inner, spec.hidden)), (layer.down, (spec.hidden, spec.inner))]
    right = all(tuple(weight.shape) == shape for weight, shape in shapes)
    return right and not any(size % 8 for size in layer.down.shape[-2:]) and layer.norm.dtype in KINDS


KINDS = (torch.bfloat16, torch.float16, torch.float32)
