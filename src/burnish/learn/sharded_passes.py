"""Passes that the ranks make together, because they divide gradients or weights (`--shard states`, `--shard full`)."""

from __future__ import annotations

from burnish.core.step import Step
from burnish.models.model import Model
from burnish.models.sharded_states import ShardedStates


def begin_backward(model: Model) -> None:
    """Before a backward pass: where weights are divided, all ranks make it at once."""
    if model.shards is not None:
        model.shards.begin_backward()


def end_pass(model: Model) -> None:
    """After a backward pass: exchange what is left of its gradients."""
    if model.optimiser.states is not None:
        model.working.collect()
        model.optimiser.states.finish()


def end_passes(model: Model, passes: int, most: int) -> None:
    """After the last of this rank's `passes`: add passes of zeros up to the `most` that any rank makes, because an
    exchange needs all ranks."""
    if model.shards is not None:
        model.ranks.portion_done()
        return
    for _ in range(most - passes):
        end_pass(model)


def most_passes(model: Model, passes: int) -> int:
    """How many passes the rank with the most of them makes, where ranks divide gradients."""
    if not isinstance(model.optimiser.states, ShardedStates) or not model.ranks.connected:
        return passes
    return max(number for number, _ in model.ranks.gather_values(passes))


def counts(step: Step) -> bool:
    """Whether this rank's numbers count: ranks that divide the tokens of a pass have the same rows, so one's do."""
    return step.models.ranks.rank % step.settings.context_ranks == 0
