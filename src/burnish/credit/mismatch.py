"""Corrections for a sampler that is not quite the trainer: rho = pi_train(theta_old) / mu, the sampler's own
probability.

Both are of the same weights; they differ by kernels, precision or quantisation. "old" is the trainer's log-prob before
the update, mu is the log-prob that was recorded at birth. Each part writes stream "weight", constant for the gradient.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace

Level = Callable[[Tensor], Tensor]


def by_token(log_rho: Tensor) -> Tensor:
    """Each token's own ratio, [t] -> [t]."""
    return log_rho.exp()


def by_sequence(log_rho: Tensor) -> Tensor:
    """The ratio of the whole reply, the product over its tokens, on each of them: [t] -> [t]."""
    return log_rho.sum().exp().expand(len(log_rho))


@supplies("stream:weight")
def truncated(cap: float, level: Level = by_token, *, author: str = "policy") -> Part:
    """Truncated importance sampling: weight = min(rho, cap). No lower bound; cap infinite is the whole correction."""
    return _weighed("truncated", lambda rho: rho.clamp(max=cap), level, author)


@supplies("stream:weight")
def masked(low: float, high: float, level: Level = by_token, *, author: str = "policy") -> Part:
    """Masked importance sampling: weight = rho where low <= rho <= high, else 0.

    low = 0: MIS. low = 0.5, high = 5 by token: IcePop (arXiv 2510.18855). A masked token keeps its place in the mean.
    """
    return _weighed("masked", lambda rho: torch.where((rho >= low) & (rho <= high), rho, 0.0), level, author)


def _weighed(name: str, rule: Callable[[Tensor], Tensor], level: Level, author: str) -> Part:
    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = trace.by(author)
        born = torch.cat([turn.logp for turn in trace.turns if turn.author == author and turn.logp is not None])
        rho = level(trace.streams["old"][mask] - born)
        trace.streams["weight"] = torch.full((len(trace),), float("nan"))
        trace.streams["weight"][mask] = rule(rho)
        step.notes.add("mismatch/ratio", float(rho.sum()), len(rho))
        step.notes.add("mismatch/changed", float((rule(rho) != rho).sum()), len(rho))

    return per_trace(
        write,
        name=name,
        reads=frozenset({f"mu:{author}", "stream:old", f"tokens:{author}"}),
        writes=frozenset({"stream:weight"}),
    )
