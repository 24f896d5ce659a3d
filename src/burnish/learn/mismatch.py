"""Whether the sampler and the trainer agree on the log-prob of a token that the current weights have sampled.

They run the same weights, so the difference is rounding alone: none with plain Llamas, Qwen2 and Qwen3 on a CPU and
layers like Llama's on a
GPU, below 1e-5 with others in fp32, a few 1e-3 in bf16. More means that the sampler was not running what is trained; a
run then says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from burnish.core.step import Notes
from burnish.core.types import Trace
from burnish.forward.packing import joined, send
from burnish.learn.batch import Row
from burnish.models.model import Model
from burnish.util.tensors import constant

NAME = "mismatch/logp"
ALARM = {torch.float32: 1e-3, torch.float64: 1e-3, torch.bfloat16: 2e-2}  # mean difference from which a run warns


def note_mismatch(
    notes: Notes, model: Model, rows: Sequence[Row], claimed: list[Tensor], outputs: dict[str, Tensor], exact: bool
) -> None:
    """Note mean |trainer - sampler| over claimed tokens that the model sampled with the weights it has now.

    exact: it has to be 0.
    """
    if "logp" not in outputs or not model.fresh:
        return
    sampled = _sampled([row.trace for row in rows], model)[joined(claimed)]
    comparable = np.isfinite(sampled).astype(np.float32)
    if not comparable.any():
        return
    device = outputs["logp"].device
    sampler_logp, counts = (send(torch.from_numpy(x), device) for x in (np.nan_to_num(sampled), comparable))
    apart, number = ((outputs["logp"].detach() - sampler_logp).abs() * counts).sum(), float(comparable.sum())
    rounding = ALARM[next(model.working.copy.parameters()).dtype]  # more is another distribution
    if exact and 0 < float(apart) / number < rounding:
        raise ValueError(
            f"--exact was asked for, but sampler and trainer differ by {float(apart) / number:.2g} on average: on "
            "this machine a "
            "product depends on the number of its rows; leave --exact out"
        )
    notes.add(NAME, apart, number)


def _sampled(traces: Sequence[Trace], model: Model) -> npt.NDArray[np.float32]:
    """[all tokens]: the log-probs that the model's present weights gave while sampling; nan elsewhere."""
    versions, logps = [], []
    for turn in (turn for trace in traces for turn in trace.turns):
        if turn.author == model.name and turn.logp is not None and turn.versions is not None:
            versions.append(turn.versions)
            logps.append(turn.logp)
        else:
            versions.append(constant(-1, len(turn), torch.long))
            logps.append(constant(0.0, len(turn), torch.float32))
    return np.where(joined(versions) == model.version, joined(logps), np.float32("nan"))
