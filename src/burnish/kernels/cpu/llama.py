"""The native Llama for a CPU; Qwen2, a Llama with biases on Q, K and V; and Qwen3, one with norms on the heads of Q and
K.

Weights have the names that transformers gives them: each reads the directories that the other writes. The modules
answer what burnish asks of a transformers model (forward/module.py), and nothing more.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from burnish.forward.attention import Keeps, Layout
from burnish.forward.packing import Packed
from burnish.forward.prefix_tree import Tree
from burnish.kernels.architectures.spec import LayerSpec
from burnish.kernels.cpu import build
from burnish.kernels.cpu.activation_cache import ActivationCache, CachedPrefill, Recalled
from burnish.kernels.cpu.c_adapters import Adapter, Adapters
from burnish.kernels.cpu.c_layer import Norm, Parts, over_pack, panel_width, sizes
from burnish.kernels.cpu.config import Shape
from burnish.kernels.cpu.torch_layer import get_ready_, inner_layer, norm, plus_product, queries_keys_values, scale_of
from burnish.kernels.cpu.weight_layout import WeightLayout
from burnish.util.files import read_json


class Weight(nn.Module):
    """A weight that comes from a file: no numbers are drawn for it."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape, device="meta"))


class Matrix(Weight):
    """A linear map; its weight is [outputs, inputs]. adapter: LoRA beside it, in the kernels."""

    def __init__(self, outputs: int, inputs: int, biased: bool = False) -> None:
        super().__init__(outputs, inputs)
        self.adapter: Adapter | None = None
        self.bias = nn.Parameter(torch.empty(outputs, device="meta")) if biased else None

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class Attention(nn.Module):
    """Projections around attention; the layout of a forward pass says which tokens attend to which."""

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = spec.of_heads
        self.q_proj = Matrix(self.heads * self.width, spec.hidden, spec.biased)
        self.k_proj = Matrix(self.kv_heads * self.width, spec.hidden, spec.biased)
        self.v_proj = Matrix(self.kv_heads * self.width, spec.hidden, spec.biased)
        self.o_proj = Matrix(spec.hidden, self.heads * self.width)
        self.q_norm, self.k_norm = (Weight(self.width) if spec.head_norms else None for _ in range(2))

    @property
    def head_norms(self) -> tuple[Tensor | None, Tensor | None]:
        """Of each head of queries and of keys, if they have any."""
        if self.q_norm is None or self.k_norm is None:
            return None, None
        return self.q_norm.weight, self.k_norm.weight

    @property
    def biases(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Of queries, keys and values, if they have any."""
        return self.q_proj.bias, self.k_proj.bias, self.v_proj.bias


class Inner(nn.Module):
    """The inner layer's matrices."""

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__()
        self.gate_proj = Matrix(spec.inner, spec.hidden)
        self.up_proj = Matrix(spec.inner, spec.hidden)
        self.down_proj = Matrix(spec.hidden, spec.inner)


class Layer(nn.Module):
    """One layer: attention and the inner layer, each with its norm before and its sum after."""

    def __init__(self, spec: LayerSpec, whole: bool) -> None:
        super().__init__()
        self.eps = spec.eps
        self.self_attn, self.mlp = Attention(spec), Inner(spec)
        self.input_layernorm, self.post_attention_layernorm = Weight(spec.hidden), Weight(spec.hidden)
        self.laid = WeightLayout(), WeightLayout(), WeightLayout(gated=whole), WeightLayout()

    def lay_out(self) -> tuple[WeightLayout, WeightLayout, WeightLayout, WeightLayout]:
        """Its weights laid out for matmuls, as they are now."""
        a, m = self.self_attn, self.mlp
        read, out, opening, down = self.laid
        of_read, of_out, of_opening, of_down = self.adapters
        read.of(a.q_proj.weight, a.k_proj.weight, a.v_proj.weight, biases=a.biases, adapters=of_read)
        return (
            read,
            out.of(a.o_proj.weight, adapters=of_out),
            opening.of(m.gate_proj.weight, m.up_proj.weight, adapters=of_opening),
            down.of(m.down_proj.weight, adapters=of_down),
        )

    @property
    def adapters(self) -> tuple[Adapters, Adapters, Adapters, Adapters]:
        """LoRA of the matrices that are laid out together."""
        a, m = self.self_attn, self.mlp
        read = a.q_proj.adapter, a.k_proj.adapter, a.v_proj.adapter
        return read, (a.o_proj.adapter,), (m.gate_proj.adapter, m.up_proj.adapter), (m.down_proj.adapter,)

    def forward(self, x: Tensor, rows: int, angles: tuple[Tensor, Tensor], layout: Layout | None) -> Tensor:
        """[N, H] to [N, H]; the N tokens are `rows` rows of one length."""
        a, m = self.self_attn, self.mlp
        read, out, *inner = self.laid
        matrices = a.q_proj.weight, a.k_proj.weight, a.v_proj.weight
        more = a.biases, a.head_norms, angles
        found = queries_keys_values(x, self.input_layernorm.weight, self.eps, read, matrices, *more)
        q, k, v = (part.unflatten(0, (rows, -1)).transpose(1, 2) for part in found)
        if layout is None:
            seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)
        else:
            seen = layout.attend(a, q, k, v, a.width**-0.5, None)
        x = plus_product(x, seen.reshape(len(x), -1), out, a.o_proj.weight)
        others = m.gate_proj.weight, m.up_proj.weight, m.down_proj.weight
        return inner_layer(x, self.post_attention_layernorm.weight, self.eps, (inner[0], inner[1]), *others)

    def in_kernels(
        self,
        shape: build.Shape,
        into: Parts | None,
        known: Recalled | None,
        x: Tensor,
        rows: int,
        angles: tuple[Tensor, Tensor],
        layout: Layout | None,
    ) -> Tensor:
        """The same in our kernels; into, known: see `over_pack`."""
        tree = Tree.alike(rows, len(x) // rows) if layout is None else cast(Packed, layout.packed).tree
        assert tree is not None
        y, found = over_pack(self, shape, x, angles, tree, into, known)
        if isinstance(layout, Keeps):
            a = self.self_attn
            k, v = found.view(len(x), -1, a.width)[:, a.heads :].split(a.kv_heads, 1)
            layout.keep(a, k, v)
        return y

    def add_one(self, x: Tensor, angles: tuple[Tensor, Tensor], layout: Layout) -> None:
        """The same without gradient for rows of one token each: x [n, H] is overwritten."""
        a = self.self_attn
        read, out, inner, down = self.lay_out()
        n = (x * scale_of(x, self.eps)).mul_(self.input_layernorm.weight)
        found = read.times(n)
        get_ready_(found[:, : (a.heads + a.kv_heads) * a.width], a.heads, a.width, a.head_norms, self.eps, angles)
        found = found.unflatten(-1, (-1, a.width))
        q, k, v = (part[:, :, None] for part in found.split([a.heads, a.kv_heads, a.kv_heads], 1))
        seen = layout.attend(a, q, k, v, a.width**-0.5, None)
        x += out.times(seen.reshape(len(x), -1))
        n = (x * scale_of(x, self.eps)).mul_(self.post_attention_layernorm.weight)
        gate, up = inner.times(n).chunk(2, -1)
        x += down.times(nn.functional.silu(gate).mul_(up))


class Decoder(nn.Module):
    """The transformer under the head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.config, self.checkpointing = shape, False
        table = torch.empty(shape.vocab_size, shape.hidden_size, device="meta")
        self.embed_tokens = nn.Embedding(
            shape.vocab_size, shape.hidden_size, getattr(shape, "pad_token_id", None), _weight=table
        )
        self.spec = shape.spec.first  # all layers are alike
        self.sizes = sizes(self.spec)
        self.layers = nn.ModuleList(Layer(spec, self.sizes is not None) for spec in shape.spec.layers)
        self.norm = Weight(shape.hidden_size)
        self.turned = torch.empty(0, 0), torch.empty(0, 0)
        self.remembered = ActivationCache()

    def remembers(self, tokens: int) -> bool:
        """Whether a sampler keeps the activations of so many tokens, at most, for the trainer."""
        learns = self.trained and not self.checkpointing and not self.spec.head_norms
        if self.kernels is None or not learns:
            self.remembered.forget()
            return False
        return self.remembered.begin(self.kernels, len(self.layers), tokens)

    def forward(
        self,
        input_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        layout: Layout | None = None,
        **_: Any,
    ) -> Any:
        """Hidden states [B, T, H] as `last_hidden_state`; without a layout, attention is causal in each row."""
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        rows, length, size = x.shape
        angles = self.angles(position_ids, rows, length, x.dtype)
        one = layout is not None and layout.packed is None and not torch.is_grad_enabled()
        x = x.reshape(-1, size).clone() if one else x.reshape(-1, size)
        x = self._through(x, rows, angles, layout, one, self._known(input_ids, layout))
        last = norm if self.kernels is None else Norm.apply
        x = last(x, self.norm.weight, self.spec.eps)
        return SimpleNamespace(last_hidden_state=x.view(rows, length, size))

    def weights_moved(self) -> None:
        """Weights have changed: their layouts and the cached activations are stale."""
        self.remembered.forget()
        for layout in (part for layer in self.layers for part in cast(Layer, layer).laid):
            layout.weights_moved()

    @property
    def trained(self) -> bool:
        """Whether its weights are trained, or adapters beside them."""
        matrices = (part for part in self.modules() if isinstance(part, Matrix))
        adapters = (part.adapter for part in matrices if part.adapter is not None)
        return self.embed_tokens.weight.requires_grad or any(adapter.a.requires_grad for adapter in adapters)

    @property
    def kernels(self) -> build.Shape | None:
        """The sizes of this model for the C kernels; None where they do not run it."""
        return self.sizes if self.norm.weight.dtype == torch.float32 else None

    @property
    def panel(self) -> int:
        """How many keys the kernels read at once; 0 without them."""
        return 0 if self.kernels is None else panel_width()

    def _known(self, tokens: Tensor | None, layout: Layout | None) -> list[Recalled] | None:
        """The cached activations of a pack, if all of its tokens are in the cache and gradients are wanted."""
        if tokens is None or not isinstance(layout, Packed) or layout.tree is None or not torch.is_grad_enabled():
            return None
        return self.remembered.recall(layout.input_keys, layout.tree)

    def _through(
        self,
        x: Tensor,
        rows: int,
        angles: tuple[Tensor, Tensor],
        layout: Layout | None,
        one: bool,
        known: list[Recalled] | None,
    ) -> Tensor:
        sizes, memory, first = (
            self.kernels,
            self.remembered,
            layout.first if isinstance(layout, CachedPrefill) else None,
        )
        for number, layer in enumerate(cast("list[Layer]", list(self.layers))):
            if one:
                layer.add_one(x, angles, cast(Layout, layout))
                continue
            into = None if first is None else memory.layers[number].part(first, len(x))
            recalled = None if known is None else known[number]
            run = layer if sizes is None else partial(layer.in_kernels, sizes, into, recalled)
            if self.checkpointing and self.training and torch.is_grad_enabled():
                x = checkpoint(run, x, rows, angles, layout, use_reentrant=False)
            else:
                x = run(x, rows, angles, layout)
        if first is not None:
            memory.last[first : first + len(x)] = x
        return x

    def angles(self, positions: Tensor | None, rows: int, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and sines [N, 1, D/2] of each token's angles."""
        if positions is None:
            positions = torch.arange(length).expand(rows, length)
        positions = positions.reshape(-1)
        cos, sin = (
            table.index_select(0, positions)[:, None] for table in self.turned_to(int(positions.max()) + 1, dtype)
        )
        return cos, sin

    def turned_to(self, far: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """[positions, D/2] cosines and sines, of so many positions at least."""
        if len(self.turned[0]) < far or self.turned[0].dtype != dtype:
            self.turned = self._turned(max(far, 2 * len(self.turned[0])), dtype)
        return self.turned

    def _turned(self, positions: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """[positions, D/2] cosines and sines: made once, so that a position's are the same wherever it is asked for."""
        width = self.spec.head_dim
        speed = 1.0 / (self.spec.rotary.theta ** (torch.arange(0, width, 2).float() / width))
        angles = torch.arange(positions).float()[:, None] * speed
        return angles.cos().to(dtype), angles.sin().to(dtype)


class Llama(nn.Module):
    """A causal language model."""

    def __init__(self, shape: Shape, generation: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.config, self.generation = shape, generation
        self.model = Decoder(shape)
        self.lm_head = Matrix(shape.vocab_size, shape.hidden_size)
        self.laid = WeightLayout()

    @property
    def base_model(self) -> Decoder:
        return self.model

    def forward(self, input_ids: Tensor, **more: Any) -> Any:
        """Logits [B, T, V] of rows [B, T], as `logits`."""
        return SimpleNamespace(logits=self.lm_head(self.model(input_ids, **more).last_hidden_state))

    def get_input_embeddings(self) -> nn.Embedding:
        return self.model.embed_tokens

    def get_output_embeddings(self) -> Matrix:
        return self.lm_head

    def gradient_checkpointing_enable(self) -> None:
        self.model.checkpointing = True

    def weights_moved(self) -> None:
        """Weights have changed: their layouts and the cached activations are stale."""
        self.model.weights_moved()
        self.laid.weights_moved()

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        """[n, V] from hidden states, without gradient."""
        return self.laid.of(self.lm_head.weight).times(states)

    def save_pretrained(self, path: Path, state_dict: dict[str, Tensor] | None = None) -> None:
        """Weights and config as transformers writes them; state_dict: other weights than the present ones."""
        path.mkdir(exist_ok=True)
        weights = dict(self.state_dict() if state_dict is None else state_dict)
        if self.config.spec.tied:
            weights.pop("lm_head.weight", None)
        save_file({name: w.contiguous() for name, w in weights.items()}, path / "model.safetensors", {"format": "pt"})
        stored = str(next(iter(weights.values())).dtype).removeprefix("torch.")
        (path / "config.json").write_text(json.dumps({**self.config.told, "dtype": stored}, indent=2) + "\n")
        if self.generation is not None:
            (path / "generation_config.json").write_text(json.dumps(self.generation, indent=2) + "\n")


def load(path: Path, shape: Shape) -> tuple[Llama, set[str]]:
    """The model of a directory in fp32, and the names of the weights that it lacks."""
    model = Llama(shape, read_json(path / "generation_config.json"))
    wanted = {name: p.shape for name, p in model.named_parameters()}
    if shape.spec.tied:
        wanted.pop("lm_head.weight")
    found: dict[str, Tensor] = {}
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            for name in wanted.keys() & set(opened.keys()):
                stored = _fitting(opened.get_tensor(name), wanted[name], name)
                found[name] = torch.empty(wanted[name]).copy_(stored)
    missing = wanted.keys() - found.keys()
    if not missing:
        if shape.spec.tied:
            found["lm_head.weight"] = found["model.embed_tokens.weight"]
        model.load_state_dict(found, assign=True)
        if shape.spec.tied:
            model.lm_head.weight = cast(nn.Parameter, model.model.embed_tokens.weight)
        model.requires_grad_(True)
    return model, set(missing)


def _fitting(tensor: Tensor, wanted: torch.Size, name: str) -> Tensor:
    if tensor.shape != wanted:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but config.json says {tuple(wanted)}")
    return tensor
