"""Per-token outputs from transformers' own forward of one row at a time: the slowest path, the others' reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from burnish.core.types import Drawn
from burnish.forward.asked import FROM_LOGITS, Asked, reduce_logits
from burnish.forward.drawn import Reshape, Temperature
from burnish.forward.module import bare, decoder, head, scalar_head, wide
from burnish.forward.prefix_tree import Numbers
from burnish.forward.sight import sight_of
from burnish.media.ids import media_in


def outputs(
    model: nn.Module,
    tokens: Sequence[Tensor | Numbers],
    masks: list[Tensor],
    want: set[str],
    drawn: Drawn | Temperature = 1.0,
    embedded: list[Tensor] | None = None,
) -> dict[str, Tensor]:
    """What forward/outputs.py's `outputs` returns: the wanted outputs at the masked tokens, flat in row order."""
    rows = [torch.as_tensor(row) for row in tokens]
    inputs: list[Tensor | None] = [None] * len(rows) if embedded is None else [*embedded]
    counts = [int(mask.sum()) for mask in masks]
    temperature = drawn.temperature if isinstance(drawn, Drawn) else drawn
    divisors = torch.as_tensor(temperature, dtype=torch.float64).expand(sum(counts)).split(counts)
    asked = Asked.of(masks)
    reshape = Reshape.of(drawn, [row.numpy() for row in rows], asked.row, asked.at)
    which = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])
    results = [
        _one_row(model, row, mask, want, divisor, given, reshape, numbers)
        for row, mask, divisor, given, numbers in zip(rows, masks, divisors, inputs, which, strict=True)
    ]
    return {name: torch.cat([row[name] for row in results]) for name in results[0]}


def _one_row(
    model: nn.Module,
    row: Tensor,
    mask: Tensor,
    want: set[str],
    divisors: Tensor,
    embedded: Tensor | None,
    reshape: Reshape | None,
    which: Numbers,
) -> dict[str, Tensor]:
    device = next(model.parameters()).device
    at = torch.from_numpy(Asked.of([mask]).at)
    inputs = {"input_ids": row.to(device)[None]} if embedded is None else {"inputs_embeds": embedded[None]}
    sight = sight_of(model) if embedded is None and media_in(row) else None
    seen = None if sight is None else sight.states(row.to(device)[None])[0]
    results: dict[str, Tensor] = {}
    if want & FROM_LOGITS:
        if seen is not None:
            before = head(model, seen[(at - 1).to(device)])
        else:
            before = wide(bare(model)(**inputs, use_cache=False).logits[0][(at - 1).to(device)])
        if reshape is None:
            before = before / divisors.to(before)[:, None]
        else:
            before = reshape.apply(before, which, (1 / divisors).to(before)[:, None])
        wanted = want & FROM_LOGITS - {"logits"}
        results |= reduce_logits(before, row[at].to(device), wanted) | {"logits": before}
    if want - FROM_LOGITS:
        states = decoder(model)(**inputs, use_cache=False).last_hidden_state[0] if seen is None else seen
        results |= {"hidden": states[(at - 1).to(device)], "state": states[at.to(device)]}
        if want & {"value", "score"}:
            results |= {"value": scalar_head(model, states[(at - 1).to(device)])}
            results |= {"score": scalar_head(model, states[at.to(device)])}
    return {name: results[name] for name in want}
