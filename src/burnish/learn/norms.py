"""How a term's units are averaged: a weight for each unit and one global size. Nothing else divides.

    total = sum over terms of coef * sum over units of weight(unit) * loss(unit) / size

Sizes are counted over the whole global batch before the first backward, so micro-batching, packing, padding, order
and the number of ranks cannot change the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """What a term claims in the global batch: claimed tokens, sequences and groups that have any, and its units.

    Beside it the traces of which any term claims a token, and the comparing groups: those with a pair or a list.
    """

    tokens: int
    sequences: int
    groups: int
    units: int
    longest: int  # the run's longest reply, for norms by a constant budget
    traces: int = 0
    comparing: int = 0


@dataclass(frozen=True)
class Norm:
    """weight(tokens of the unit's sequence, tokens of its group), or compared(traces of the group) for a pair or list,
    and size(counts).
    """

    name: str
    weight: Callable[[int, int], float]
    size: Callable[[Counts], float]
    compared: Callable[[int], float] = lambda traces: 1.0


unit_mean = Norm("mean over units", lambda seq, group: 1.0, lambda n: n.units)
token_mean = Norm("mean over all tokens", lambda seq, group: 1.0, lambda n: n.tokens)
seq_mean = Norm("mean over sequences of token means", lambda seq, group: 1.0 / seq, lambda n: n.sequences)
seq_sum_mean = Norm("mean over sequences of token sums", lambda seq, group: 1.0, lambda n: n.sequences)
group_mean = Norm("mean over groups of token means", lambda seq, group: 1.0 / group, lambda n: n.groups)


def constant(budget: int | None = None) -> Norm:
    """Token sums over sequences x a constant: the budget, or the run's longest allowed reply (Dr. GRPO)."""
    return Norm("sum over sequences x budget", lambda seq, group: 1.0, lambda n: n.sequences * (budget or n.longest))


def constant_over_all() -> Norm:
    """`constant()`, whose sequences are those of all terms: for terms that share a batch by author (LUFFY)."""
    return Norm("sum over all sequences x budget", lambda seq, group: 1.0, lambda n: n.traces * n.longest)
