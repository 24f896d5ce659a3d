"""Forward passes of the learner: outputs at the tokens that terms claim, of a micro-batch or of its pieces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from burnish.core.step import LogpAt
from burnish.core.types import Drawn, Trace, at_temperature, how_drawn, keys_of_rows
from burnish.forward.asked import FROM_LOGITS
from burnish.forward.module import input_embeddings
from burnish.forward.sight import embedded as embedded_tokens
from burnish.learn.batch import Row, tokens_of
from burnish.models.build import Models
from burnish.models.model import Model


@dataclass(frozen=True)
class Embed:
    """What is read in place of a trace's tokens while a trainee learns."""

    name: str
    call: Callable[[Tensor, Trace, nn.Module], Tensor]  # (embeddings [T, H], trace, embedding table) -> [T, H]
    streams: tuple[str, ...] = ()  # the per-token numbers that it needs


def cut_masks(cut: list[tuple[Row, ...]], claimed: list[Tensor]) -> list[list[Tensor]]:
    """The masks of a micro-batch's rows, piece by piece."""
    starts = [sum(len(piece) for piece in cut[:k]) for k in range(len(cut) + 1)]
    return [claimed[starts[k] : starts[k + 1]] for k in range(len(cut))]


def piecewise(
    model: Model,
    cut: list[tuple[Row, ...]],
    claimed: list[Tensor],
    want: set[str],
    at: LogpAt,
    embed: Embed | None = None,
) -> list[dict[str, Tensor]]:
    """The outputs of each piece of a micro-batch."""
    masks = zip(cut, cut_masks(cut, claimed), strict=True)
    return [outputs_of(model, piece, mask, want, at, embed) for piece, mask in masks]


def outputs_of(
    model: Model,
    rows: tuple[Row, ...],
    masks: list[Tensor],
    want: set[str],
    at: LogpAt,
    embed: Embed | None = None,
) -> dict[str, Tensor]:
    """The outputs at the masked tokens of rows, of the distributions that they were drawn from or at a temperature."""
    traces = [row.trace for row in rows]
    drawn: Drawn | float = 1.0
    if want & FROM_LOGITS:
        drawn = how_drawn(traces, masks, at.given) if at.temperature is None else at_temperature(traces, at.temperature)
    keys = keys_of_rows([row.trace.turns for row in rows])
    if embed is None:
        return model.outputs(tokens_of(rows), masks, want, drawn, replayed=torch.is_grad_enabled(), input_keys=keys)
    module = model.working.weights()
    table = input_embeddings(module)
    device = model.device
    tokens = tokens_of(rows)
    embedded = [
        embed.call(embedded_tokens(module, torch.from_numpy(ids).to(device)), row.trace, table)
        for ids, row in zip(tokens, rows, strict=True)
    ]
    return model.outputs(tokens, masks, want, drawn, embedded)


@torch.no_grad()
def frozen_outputs(
    models: Models, names: Iterable[str], rows: tuple[Row, ...], masks: list[Tensor], at: LogpAt
) -> dict[str, Tensor]:
    """Live outputs of models that are not trained here, by names such as "teacher.logits", without gradient."""
    wanted: dict[str, set[str]] = defaultdict(set)
    for model, dot, output in (name.partition(".") for name in names):
        if dot:
            wanted[model].add(output)
    by_model = {model: outputs_of(models[model], rows, masks, want, at) for model, want in wanted.items()}
    return {f"{model}.{name}": out for model, outputs in by_model.items() for name, out in outputs.items()}
