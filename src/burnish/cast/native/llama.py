"""Llama; Qwen2, which is a Llama with biases on what attention reads; and Qwen3, one whose heads of queries and keys have norms.

With the names that transformers gives their weights: directories of either are directories of the other.

It answers what burnish asks of a transformers model (cast/forward.py, cast/engine), and nothing more.
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

from burnish.cast.attention import Keeps, Layout
from burnish.cast.native import compiled
from burnish.cast.native.blocks import get_ready_, inner_layer, norm, plus_product, queries_keys_values, scale_of
from burnish.cast.native.config import Shape, read_json
from burnish.cast.native.laid import Laid
from burnish.cast.native.remembered import Recalled, Remembered
from burnish.cast.native.whole import Norm, Parts, over_pack, panel_width, sizes
from burnish.cast.packing import Packed
from burnish.cast.tree import Tree


class Weight(nn.Module):
    """A weight that comes from a file: no numbers are drawn for it."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape, device="meta"))


class Matrix(Weight):
    """A linear map; its weight is [outputs, inputs]."""

    def __init__(self, outputs: int, inputs: int, biased: bool = False) -> None:
        super().__init__(outputs, inputs)
        self.bias = nn.Parameter(torch.empty(outputs, device="meta")) if biased else None

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class Attention(nn.Module):
    """Projections around attention; the layout of a forward says what sees what."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        self.q_proj = Matrix(self.heads * self.width, shape.hidden_size, shape.biased)
        self.k_proj = Matrix(self.kv_heads * self.width, shape.hidden_size, shape.biased)
        self.v_proj = Matrix(self.kv_heads * self.width, shape.hidden_size, shape.biased)
        self.o_proj = Matrix(shape.hidden_size, self.heads * self.width)
        self.q_norm, self.k_norm = (Weight(self.width) if shape.normed else None for _ in range(2))

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

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = Matrix(shape.intermediate_size, shape.hidden_size)
        self.up_proj = Matrix(shape.intermediate_size, shape.hidden_size)
        self.down_proj = Matrix(shape.hidden_size, shape.intermediate_size)


class Layer(nn.Module):
    """One layer: attention and the inner layer, each with its norm before and its sum after."""

    def __init__(self, shape: Shape, whole: bool) -> None:
        super().__init__()
        self.eps = shape.rms_norm_eps
        self.self_attn, self.mlp = Attention(shape), Inner(shape)
        self.input_layernorm, self.post_attention_layernorm = Weight(shape.hidden_size), Weight(shape.hidden_size)
        self.laid = Laid(), Laid(), Laid(gated=whole), Laid()

    def lay_out(self) -> tuple[Laid, Laid, Laid, Laid]:
        """Its weights as products read them, as they are now."""
        a, m = self.self_attn, self.mlp
        read, out, opening, down = self.laid
        read.of(a.q_proj.weight, a.k_proj.weight, a.v_proj.weight, biases=a.biases)
        return (
            read,
            out.of(a.o_proj.weight),
            opening.of(m.gate_proj.weight, m.up_proj.weight),
            down.of(m.down_proj.weight),
        )

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
        shape: compiled.Shape,
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
        self.sizes = sizes(shape)
        self.layers = nn.ModuleList(Layer(shape, self.sizes is not None) for _ in range(shape.num_hidden_layers))
        self.norm = Weight(shape.hidden_size)
        self.turned = torch.empty(0, 0), torch.empty(0, 0)
        self.remembered = Remembered()

    def remembers(self, tokens: int) -> bool:
        """Whether a sampler is to leave what it computes for the trainer: of so many tokens at most."""
        learns = self.embed_tokens.weight.requires_grad and not self.checkpointing and not self.config.normed
        if self.kernels is None or not learns:
            self.remembered.forget()
            return False
        return self.remembered.begin(self, self.kernels, len(self.layers), tokens)

    def forward(
        self,
        input_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        layout: Layout | None = None,
        **_: Any,
    ) -> Any:
        """Hidden states [B, T, H] as `last_hidden_state`; without a layout, rows see themselves causally."""
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        rows, length, size = x.shape
        angles = self.angles(position_ids, rows, length, x.dtype)
        one = layout is not None and layout.packed is None and not torch.is_grad_enabled()
        x = x.reshape(-1, size).clone() if one else x.reshape(-1, size)
        x = self._through(x, rows, angles, layout, one, self._known(input_ids, layout))
        last = norm if self.kernels is None else Norm.apply
        x = last(x, self.norm.weight, self.config.rms_norm_eps)
        return SimpleNamespace(last_hidden_state=x.view(rows, length, size))

    @property
    def kernels(self) -> compiled.Shape | None:
        """What our kernels are told of this model; None where they do not run it."""
        return self.sizes if self.norm.weight.dtype == torch.float32 else None

    @property
    def panel(self) -> int:
        """How many keys the kernels read at once; 0 without them."""
        return 0 if self.kernels is None else panel_width()

    def _known(self, tokens: Tensor | None, layout: Layout | None) -> list[Recalled] | None:
        """What the layers make of a pack, if the sampler has left what it computed of all its tokens, and gradients are wanted."""
        if tokens is None or not isinstance(layout, Packed) or layout.tree is None or not torch.is_grad_enabled():
            return None
        return self.remembered.recall(self, tokens.reshape(-1), layout.tree)

    def _through(
        self,
        x: Tensor,
        rows: int,
        angles: tuple[Tensor, Tensor],
        layout: Layout | None,
        one: bool,
        known: list[Recalled] | None,
    ) -> Tensor:
        sizes, memory, first = self.kernels, self.remembered, getattr(layout, "first", None)
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
        width = self.config.head_dim
        speed = 1.0 / (self.config.rope_theta ** (torch.arange(0, width, 2).float() / width))
        angles = torch.arange(positions).float()[:, None] * speed
        return angles.cos().to(dtype), angles.sin().to(dtype)


class Llama(nn.Module):
    """A causal language model."""

    def __init__(self, shape: Shape, generation: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.config, self.generation = shape, generation
        self.model = Decoder(shape)
        self.lm_head = Matrix(shape.vocab_size, shape.hidden_size)
        self.laid = Laid()

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

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        """[n, V] from hidden states, without gradient."""
        return self.laid.of(self.lm_head.weight).times(states)

    def save_pretrained(self, path: Path, state_dict: dict[str, Tensor] | None = None) -> None:
        """Weights and config as transformers writes them; state_dict: other weights than the present ones."""
        path.mkdir(parents=True, exist_ok=True)
        weights = dict(self.state_dict() if state_dict is None else state_dict)
        if self.config.tie_word_embeddings:
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
    if shape.tie_word_embeddings:
        wanted.pop("lm_head.weight")
    found: dict[str, Tensor] = {}
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            for name in wanted.keys() & set(opened.keys()):
                found[name] = torch.empty(wanted[name]).copy_(_fitting(opened.get_tensor(name), wanted[name], name))
    missing = wanted.keys() - found.keys()
    if not missing:
        if shape.tie_word_embeddings:
            found["lm_head.weight"] = found["model.embed_tokens.weight"]
        model.load_state_dict(found, assign=True)
        if shape.tie_word_embeddings:
            model.lm_head.weight = cast(nn.Parameter, model.model.embed_tokens.weight)
        model.requires_grad_(True)
    return model, set(missing)


def _fitting(tensor: Tensor, wanted: torch.Size, name: str) -> Tensor:
    if tensor.shape != wanted:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but config.json says {tuple(wanted)}")
    return tensor
