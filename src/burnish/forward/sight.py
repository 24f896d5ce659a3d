"""What a model that sees reads: the vectors of its tower in place of the media ids of a row, and their positions.

The language model inside is run as every other decoder is. Its input is the embedding table for text, and for the media
ids of a picture (media/ids.py) the features that the tower makes of it, computed for one picture at a time: they do not
depend on what else is in a batch. Without gradient they are kept until the weights move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from burnish.forward.module import bare, decoder, input_embeddings
from burnish.forward.prefix_tree import Numbers
from burnish.media.ids import FIRST, CutPicture, has_media, runs_of, split
from burnish.media.store import STORE, Ready

KEPT = 512  # pictures whose features are kept
_OF: WeakKeyDictionary[nn.Module, Sight | None] = WeakKeyDictionary()


@dataclass(frozen=True)
class Features:
    """What a tower makes of a picture: [n, H], and for some models more for its first layers, [n, H] each."""

    vectors: Tensor
    deep: tuple[Tensor, ...] = ()


class Sight:
    """The tower of a model, and how its decoder takes pictures.

    soft      the id by which transformers' own forward knows the place of a vector
    axes      whether positions have three axes (M-RoPE)
    together  whether the tokens of a picture attend to each other in both directions: then the whole model runs a row
    """

    def __init__(self, module: nn.Module) -> None:
        inner: Any = bare(module)
        self.module, self.base = module, inner.base_model
        config = inner.config
        self.soft = int(getattr(config, "image_token_id", None) or getattr(config, "image_token_index", None) or 0)
        taken = signature(type(self.base).forward).parameters
        self.takes = frozenset(taken)
        self.axes = hasattr(self.base, "get_rope_index")
        self.together = "token_type_ids" in taken
        read = {id(p) for p in decoder(module).parameters()}
        self.tower = [p for p in self.base.parameters() if id(p) not in read]
        self.wanted = frozenset(signature(type(self.base).get_image_features).parameters)
        self._kept: dict[int, Features] = {}
        self.reader: str | None = None  # the processor that belongs to the model; None: not known

    def forget(self) -> None:
        """The weights have moved: features are computed again, unless the tower alone stays as it is."""
        stays = not any(p.requires_grad for p in self.tower)
        if not stays or not any(p.requires_grad for p in self.module.parameters()):
            self._kept.clear()

    # ------------------------------------------------------------------------------------------------- the features

    def features(self, key: int) -> Features:
        """The vectors of a picture; with gradient where the tower learns and grad is on."""
        if torch.is_grad_enabled() and any(p.requires_grad for p in self.tower):
            return self._computed(STORE.of(key))
        known = self._kept.get(key)
        if known is None:
            with torch.no_grad():
                known = self._computed(STORE.of(key))
            if len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = known
        return known

    def _computed(self, picture: Ready) -> Features:
        like = self.tower[0]
        inputs = {
            name: x.to(like.device, like.dtype) if x.is_floating_point() else x.to(like.device)
            for name, x in picture.inputs.items()
            if name in self.wanted
        }
        out = self.base.get_image_features(**inputs, return_dict=True)
        vectors = _joined(out.pooler_output)
        if len(vectors) != picture.count or (self.reader is not None and picture.reader != self.reader):
            raise ValueError(
                f"the tower makes {len(vectors)} vectors of a picture that is {picture.count} tokens: a picture was "
                "processed for another model, or the processor and the model of a directory do not belong together"
            )
        deep = getattr(out, "deepstack_features", None)
        return Features(vectors, tuple(map(_joined, deep or ())))

    # ------------------------------------------------------------------------------------------------- the input

    def read(self, tokens: Tensor) -> dict[str, Tensor | list[Tensor]]:
        """What the decoder takes for token ids [..., T]: the ids themselves where they are text."""
        if not bool((tokens >= FIRST).any()):
            return {"input_ids": tokens}
        seen = tokens >= FIRST
        vectors, deep = self._vectors(tokens[seen].cpu().numpy())
        table = input_embeddings(self.module)
        text = table(tokens.masked_fill(seen, 0))
        at = seen.flatten().nonzero()[:, 0]
        whole = text.flatten(0, -2).index_copy(0, at, vectors.to(text.dtype)).view_as(text)
        if not deep:
            return {"inputs_embeds": whole}
        return {"inputs_embeds": whole, "visual_pos_masks": seen, "deepstack_visual_embeds": deep}

    def _vectors(self, ids: Numbers) -> tuple[Tensor, list[Tensor]]:
        """[n, H]: the vectors of media ids, in their order; and those for the first layers, where there are more."""
        keys, positions = split(ids)
        different, which = np.unique(keys, return_inverse=True)
        seen = [self.features(key) for key in different.tolist()]
        starts = np.concatenate([[0], np.cumsum([len(one.vectors) for one in seen])])
        at = torch.from_numpy(starts[which] + positions).to(seen[0].vectors.device)
        levels = range(len(seen[0].deep))
        deep = [torch.cat([one.deep[k] for one in seen]).index_select(0, at) for k in levels]
        return torch.cat([one.vectors for one in seen]).index_select(0, at), deep

    def states(self, tokens: Tensor) -> Tensor:
        """[B, T, H]: the last hidden states of rows of one length, with nothing that packs or caches do."""
        inputs = self.read(tokens)
        if not self.together:
            return _last(decoder(self.module)(**inputs, **self._placed(tokens), use_cache=False))
        if "inputs_embeds" in inputs:
            inputs["token_type_ids"] = (tokens >= FIRST).long()
        return _last(self.base(**inputs, use_cache=False))

    def whole(self, row: Tensor) -> Tensor:
        """[T, V]: the logits of transformers' own forward of a row, from the tensors of its processor."""
        inner: Any = bare(self.module)
        runs = runs_of(row.numpy())
        like = self.tower[0]
        given: dict[str, Tensor] = {}
        for run in runs:
            for name, x in STORE.of(run.key).inputs.items():
                x = x.to(like.device, like.dtype) if x.is_floating_point() else x.to(like.device)
                side = 1 if x.ndim > 3 and x.shape[0] == 1 and x.ndim in (4, 5) and self._nested(name, x) else 0
                given[name] = x if name not in given else torch.cat([given[name], x], side)
        media = row >= FIRST
        ids = row.masked_fill(media, self.soft)[None].to(like.device)
        named = ("token_type_ids", "mm_token_type_ids")
        kinds = {name: media[None].long().to(like.device) for name in named if runs and name in self.takes}
        logits: Tensor = inner(input_ids=ids, **given, **kinds, use_cache=False).logits[0]
        return logits

    def _nested(self, name: str, x: Tensor) -> bool:
        """Whether pictures lie along the second dimension: [1, pictures, ...], as Idefics has them."""
        return name == "pixel_attention_mask" or x.ndim == 5

    # ------------------------------------------------------------------------------------------------- the positions

    def _placed(self, tokens: Tensor) -> dict[str, Tensor]:
        """The positions of rows [B, T] where they are not simply 0, 1, 2, ..."""
        if not self.axes or not bool((tokens >= FIRST).any()):
            return {}
        return {"position_ids": self.placed(tokens.cpu().numpy()).to(tokens.device)}

    def placed(self, rows: Numbers) -> Tensor:
        """[3, B, T]: the positions of rows of one length."""
        return torch.stack([self.positions(row) for row in rows], 1)

    def positions(self, row: Numbers) -> Tensor:
        """[3, T]: the positions of a row's tokens, with a picture's on a grid, as the model's own code has them."""
        runs = runs_of(row)
        if not runs:
            return torch.arange(len(row)).expand(3, -1)
        grids = torch.cat([STORE.of(run.key).inputs["image_grid_thw"] for run in runs])
        ids = torch.from_numpy(np.where(row >= FIRST, self.soft, row))[None]
        kinds = torch.from_numpy(row >= FIRST)[None].int()
        places: Tensor = self.base.get_rope_index(ids, mm_token_type_ids=kinds, image_grid_thw=grids)[0][:, 0]
        return places

    def shift(self, row: Numbers) -> int:
        """How far the position of the token after a row is from the number of the row's tokens."""
        return int(self.positions(row).max()) + 1 - len(row) if self.axes and has_media(row) else 0

    def in_pack(self, positions: Tensor, rows: Sequence[Numbers], lines: Numbers) -> Tensor:
        """Positions [1, N] of a pack of these rows, whose tokens lie at `lines`; [3, 1, N] with three axes."""
        if not self.axes or not any(map(has_media, rows)):
            return positions
        own = torch.cat([self.positions(row) for row in rows], 1)
        packed = positions.expand(3, -1).clone()
        packed[:, torch.from_numpy(lines).to(packed.device)] = own.to(packed.device)
        return packed[:, None]

    def check(self, rows: Sequence[Numbers]) -> None:
        """Refuse rows that end inside a picture."""
        for row in rows:
            for run in runs_of(row) if has_media(row) else ():
                if len(run.at) != STORE.of(run.key).count:
                    raise CutPicture("a row ends inside a picture; leave it out, or raise the limit on its length")


def _joined(pieces: Tensor | Sequence[Tensor]) -> Tensor:
    """[n, H] of a picture whose vectors come as [tiles, n, H], or tile by tile."""
    whole = pieces if isinstance(pieces, Tensor) else torch.cat([piece.flatten(0, -2) for piece in pieces])
    return whole.flatten(0, -2)


def _last(out: Any) -> Tensor:
    states: Tensor = out.last_hidden_state
    return states


def sight_of(module: nn.Module) -> Sight | None:
    """The sight of a model; None for one that reads text alone."""
    if module not in _OF:
        inner: Any = bare(module)
        sees = hasattr(getattr(inner, "base_model", None), "get_image_features")
        _OF[module] = Sight(module) if sees else None
    return _OF[module]


def read(module: nn.Module, tokens: Tensor) -> dict[str, Tensor | list[Tensor]]:
    """What a model's decoder takes for token ids."""
    sight = sight_of(module)
    if sight is None or (tokens.is_cuda and torch.cuda.is_current_stream_capturing()):
        return {"input_ids": tokens}
    return sight.read(tokens)


def embedded(module: nn.Module, tokens: Tensor) -> Tensor:
    """[T, H]: what a model reads at each token, as vectors."""
    sight = sight_of(module)
    inputs: dict[str, Any] = {} if sight is None else sight.read(tokens)
    if "deepstack_visual_embeds" in inputs:
        raise ValueError(
            "what a model reads is changed while it learns, which is not known for pictures that enter its later "
            "layers as well; use another method, or rows without pictures"
        )
    vectors: Tensor = inputs["inputs_embeds"] if "inputs_embeds" in inputs else input_embeddings(module)(tokens)
    return vectors
