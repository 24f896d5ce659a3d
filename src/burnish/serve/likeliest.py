"""The likeliest tokens at each place of a reply, and the log-probs of its prompt: one more pass of the model over both.

Log-probs are at temperature 1, before top_p and the like.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import Tensor

from burnish.core.types import Trace, Turn
from burnish.models.model import Model
from burnish.serve.asked import Asked

Likely = list[list[tuple[str, float]]]


class Seen(TypedDict, total=False):
    """Fields of an answer (serve/asked.py)."""

    tops: Likely
    prompt_logps: list[float | None]
    prompt_pieces: list[str]


def likeliest(model: Model, turns: Sequence[Turn], asked: Asked, budget: int) -> Seen:
    """The likeliest tokens of a reply, the last of the turns; with `echo` the log-probs of the prompt's tokens, too."""
    trace = Trace(tuple(turns))
    tokens, begin = trace.tokens, len(trace) - len(turns[-1])
    mask = torch.ones(len(trace), dtype=torch.bool)
    mask[0] = False
    mask[1 : (1 if asked.echo else begin)] = False
    [streams] = model.streams([trace], [mask], {"logits"}, budget, 1.0)
    logs = torch.log_softmax(streams["logits"][1:].float().cpu(), -1)  # [T - 1, V]: of the tokens from the second on
    seen: Seen = {}
    if asked.top:
        seen["tops"] = _tops(model, logs[max(begin - 1, 0) :], asked.top, begin)
    if asked.echo:
        own = logs[: begin - 1].gather(-1, tokens[1:begin, None])[:, 0].tolist()
        seen["prompt_logps"] = [None, *own]
        seen["prompt_pieces"] = [model.chat.spelling.text(tokens[i : i + 1].numpy()) for i in range(begin)]
    return seen


def _tops(model: Model, logs: Tensor, most: int, begin: int) -> Likely:
    values, ids = logs.topk(min(most, logs.shape[-1]), -1)
    read = model.chat.tokenizer.decode
    tops: Likely = [
        [(read([token]), value) for token, value in zip(line, numbers, strict=True)]
        for line, numbers in zip(ids.tolist(), values.tolist(), strict=True)
    ]
    return tops if begin else [[], *tops]
