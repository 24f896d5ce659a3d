"""Backward passes whose gradients the ranks divide (`--shard states`): they exchange them in every pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from burnish.models.model import Model
from burnish.util.failures import out_of_memory

T = TypeVar("T")


def end_pass(model: Model) -> None:
    """After a backward pass: exchange what is left of its gradients."""
    if model.optimiser.states is not None:
        model.working.collect()
        model.optimiser.states.finish()


def missing_passes(model: Model, passes: int) -> int:
    """How many passes of zeros this rank adds to its own: an exchange needs all ranks, so all make as many."""
    if model.optimiser.states is None or not model.ranks.connected:
        return 0
    return max(number for number, _ in model.ranks.gather_values(passes)) - passes


def or_out_of_memory(attempt: Callable[[], T], rank: int, budget: int) -> T:
    """What `attempt` gives. It is not repeated in smaller pieces: the other ranks are in the middle of an exchange."""
    try:
        return attempt()
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
    raise ValueError(
        f"rank {rank} is out of memory with passes of up to {budget:,} tokens, and with --shard states a rank cannot "
        f"repeat a pass in smaller pieces: use --token-budget {max(1, budget // 2)}, or --checkpoint-activations"
    )
