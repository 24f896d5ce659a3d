"""Outputs from logits as tokens were drawn: at their temperatures, under their penalties, among what was allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from burnish.core.types import Drawn
from burnish.forward.packing import send
from burnish.forward.prefix_tree import Numbers
from burnish.media.ids import FIRST

Temperature = float | np.ndarray  # one for all tokens that are asked about, or one for each of them [N]
Compute = Callable[[Numbers | slice, float], dict[str, Tensor]]  # (which tokens, their temperature) -> outputs [n, ...]

# The logit of a token that could not be drawn. Finite, so that its probability and its share of an entropy are exactly
# 0 where -inf would make 0 * inf.
NEVER = -1e30


def by_temperature(temperature: Temperature, compute: Compute) -> dict[str, Tensor]:
    """compute's outputs for all tokens, in their order. One temperature is one call, for slice(None)."""
    if not isinstance(temperature, np.ndarray):
        return compute(slice(None), temperature)
    values, which = np.unique(temperature, return_inverse=True)
    if len(values) == 1:
        return compute(slice(None), float(values[0]))
    places = [np.flatnonzero(which == k) for k in range(len(values))]
    parts = [compute(some, float(value)) for some, value in zip(places, values, strict=True)]
    order = torch.from_numpy(np.argsort(np.concatenate(places)))
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return {name: x.index_select(0, send(order, x.device)) for name, x in joined.items()}


def penalised(logits: Tensor, penalty: Tensor, seen: Tensor) -> Tensor:
    """Logits [n, V] under each row's repetition penalty [n] (0 or 1: none) on the tokens that it has seen [n, V]."""
    by = torch.where(penalty == 0, 1.0, penalty)[:, None].to(logits.dtype)
    return torch.where(seen, torch.where(logits > 0, logits / by, logits * by), logits)


def drawn_outputs(logits: Tensor, chosen: Tensor, want: set[str]) -> dict[str, Tensor]:
    """What is wanted of logits in which some are NEVER; the log-prob in the bits of the sampler's."""
    logs = torch.log_softmax(logits, -1)
    outputs = {"logits": logits, "greedy": logits.argmax(-1)}
    outputs["logp"] = logs.gather(-1, chosen[:, None])[:, 0]
    if "entropy" in want:
        outputs["entropy"] = -(logs.exp() * logs).sum(-1)
    if want & {"drift", "std"}:
        outputs |= {"drift": 2 * (0.5 * logs).exp(), "std": torch.ones_like(outputs["logp"])}
    return {name: outputs[name] for name in want}


class Reshape:
    """How tokens that are asked about were drawn otherwise than from softmax(logits / temperature).

    rows, row, at  the tokens of all rows, and of each token asked about its row and its number there
    """

    def __init__(self, drawn: Drawn, rows: Sequence[Numbers], row: Numbers, at: Numbers) -> None:
        self.drawn, self.rows, self.row, self.at = drawn, rows, row, at

    @classmethod
    def of(cls, drawn: Drawn | Temperature, rows: Sequence[Numbers], row: Numbers, at: Numbers) -> Reshape | None:
        """None where all were drawn from softmax(logits / temperature)."""
        if not isinstance(drawn, Drawn) or (drawn.penalty is None and drawn.allowed is None):
            return None
        return cls(drawn, rows, row, at)

    def apply(self, logits: Tensor, which: Numbers, factor: float | Tensor) -> Tensor:
        """The logits [n, V] of these of the tokens times 1 / temperature; NEVER is that of a token that could not be
        drawn.
        """
        if self.drawn.penalty is not None:
            penalty = send(torch.from_numpy(self.drawn.penalty[which]), logits.device)
            logits = penalised(logits, penalty, self._seen(logits, which))
        logits = logits * factor
        if self.drawn.allowed is None:
            return logits
        among = [self.drawn.allowed[i] for i in which]
        closed = torch.ones(logits.shape, dtype=torch.bool)
        for line, ids in zip(closed, among, strict=True):
            line[slice(None) if ids is None else ids.long()] = False
        return logits.masked_fill(send(closed, logits.device), NEVER)

    def _seen(self, logits: Tensor, which: Numbers) -> Tensor:
        """[n, V] bool: the tokens that stand before each of these, in its own row."""
        first = torch.full((len(self.rows), logits.shape[1]), np.iinfo(np.int64).max)  # where each token first stands
        for r in np.unique(self.row[which]).tolist():
            ids, places = np.unique(self.rows[r], return_index=True)
            ids, places = ids[ids < FIRST], places[ids < FIRST]  # a picture is no token that can be drawn
            first[r, torch.from_numpy(ids)] = torch.from_numpy(places)
        return send(first[self.row[which]] < torch.from_numpy(self.at[which])[:, None], logits.device)
