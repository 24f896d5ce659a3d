"""AdamW (torch's, or with moments and weights in fewer bits) with a schedule of the clock, clipping, and a state that
is saved without pickle."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from burnish.core.schedules import warmup_then
from burnish.core.step import Settings
from burnish.core.types import Clock
from burnish.models.ranks import Ranks
from burnish.models.sharded_states import ShardedStates
from burnish.models.sharded_weights import ShardedWeights

if TYPE_CHECKING:
    from torch.optim import Optimizer

SHARDS = ("off", "optimiser", "states", "full")  # what ranks divide besides the work
OPTIMISERS = ("adamw", "adamw16bit", "adamw8bit")
MASTER_WEIGHTS = ("float32", "split", "bfloat16")  # of what is trained (models/compact_adamw.py)


class Optimiser:
    """One trained model's optimiser. Learning rate = settings.lr x the role's multiplier x the schedule.

    on_step: called after every step, because the weights have moved
    owners: with --shard optimiser the rank that moves each parameter and holds its moments; else empty
    states: with --shard states and full what this rank holds and moves; else None
    others: moments that other ranks hold, while a checkpoint is collected (models/shards.py)
    """

    def __init__(
        self, model: nn.Module, settings: Settings, multiplier: float = 1.0, ranks: Ranks | None = None
    ) -> None:
        self.named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.settings, self.multiplier = settings, multiplier
        self.schedule = warmup_then(settings.lr_schedule, settings.lr_warmup, settings.lr_min)
        self.on_step: Callable[[], None] = lambda: None
        self.ranks, self.others = ranks or Ranks(), dict[str, Tensor]()
        sizes = [p.numel() for p in self.named.values()]
        owners = self.ranks.owners(sizes) if settings.shard == "optimiser" and self.ranks.connected else []
        self.owners = dict(zip(self.named, owners, strict=False))
        self.states = _divided(self.named, self.ranks, settings.shard)

    @property
    def moved(self) -> dict[str, nn.Parameter]:
        """What this process moves, by name: the parameters, or its runs of them."""
        if self.states is None:
            return self.named
        self.states.begin()
        return self.states.owned

    @cached_property
    def adamw(self) -> Optimizer:
        """Matrices decay, vectors do not. Made when it is first needed: torch.optim imports the
        compiler, for a second.
        """
        from torch.optim import AdamW

        moved = self.moved
        matrices = [moved[name] for name, p in self.named.items() if p.ndim >= 2 and moved[name].numel()]
        vectors = [moved[name] for name, p in self.named.items() if p.ndim < 2 and moved[name].numel()]
        decays = ((matrices, self.settings.weight_decay), (vectors, 0.0))
        groups = [{"params": some, "weight_decay": decay} for some, decay in decays if some]
        if self.settings.optimiser == "adamw" and self.settings.master_weights == "float32":
            return AdamW(groups, betas=(0.9, 0.999), eps=1e-8, fused=True)
        return compact_adamw(groups, self.settings.optimiser, self.settings.master_weights)

    def zero(self) -> None:
        for p in self.moved.values():
            p.grad = None

    def lr(self, clock: Clock) -> float:
        return self.settings.lr * self.multiplier * self.schedule(clock)

    def leave_out(self, rests: Callable[[str], bool]) -> None:
        """Parameters that rest: their gradients are dropped, and they do not move."""
        for name, p in self.moved.items():
            if rests(name):
                p.grad = None

    def clip(self) -> Tensor:
        """Clip the gradient, and say how large it was: a number that may still be on its way.

        On a CPU, where it is there at once, a gradient that is small enough is not multiplied by one.
        """
        limit, moved = self.settings.clip or float("inf"), self.moved.values()
        if self.states is not None:
            norm = self.states.norm()
        else:
            norm = torch.nn.utils.get_total_norm([p.grad for p in moved if p.grad is not None])
        if norm.is_cuda or not float(limit / (norm + 1e-6)) >= 1.0:  # as clip_grads_with_norm_ reckons
            torch.nn.utils.clip_grads_with_norm_(moved, limit, norm)
        return norm

    def step(self, clock: Clock, spoilt: Tensor | None = None) -> None:
        """Move the weights by the gradient. spoilt []: nothing moves if it is 1.

        The step is queued on the device before it is known here whether the gradient is finite: to wait for that takes
        as long as the step.
        """
        for group in self.adamw.param_groups:
            group["lr"] = self.lr(clock)
        self.adamw.found_inf = spoilt  # type: ignore[attr-defined]  # the fused step reads it, as GradScaler sets it
        for name, owner in self.owners.items():
            if owner != self.ranks.rank:
                self.named[name].grad = None  # without a gradient AdamW neither moves it nor makes moments for it
        self.adamw.step()
        if self.owners:
            self.ranks.spread(list(self.named.values()), list(self.owners.values()))
        if self.states is not None:
            self.states.publish()
        self.on_step()

    def state_dict(self) -> dict[str, Tensor]:
        """Moments and counts by parameter name: the live tensors, which the next `step` changes."""
        state = self.adamw.state if "adamw" in vars(self) else {}
        states = {
            f"{key}/{name}": value.detach() for name, p in self.moved.items() for key, value in state.get(p, {}).items()
        }
        return {**states, **self.others}

    def load_state_dict(self, state: Iterable[tuple[str, Tensor]]) -> None:
        """Take moments and counts by parameter name, one after the other."""
        for key, value in state:
            kind, name = key.split("/", 1)
            if self.owners.get(name, self.ranks.rank) != self.ranks.rank:
                continue
            p = self.moved[name]
            if self.states is not None:
                value = self.states.own_part(name, value)
            if p.numel():
                self.adamw.state[p][kind] = value.to(p.device, copy=True)


def _divided(named: dict[str, nn.Parameter], ranks: Ranks, shard: str) -> ShardedStates | ShardedWeights | None:
    """What this rank holds of parameters that ranks divide; None where each has all of them."""
    if shard == "full":
        return ShardedWeights(named, ranks) if ranks.connected else None
    return ShardedStates(named, ranks) if shard == "states" else None


def compact_adamw(groups: list[dict[str, object]], optimiser: str, master_weights: str) -> Optimizer:
    """AdamW with what --optimiser and --master-weights say."""
    from burnish.models.adamw8bit import EightBitMoments
    from burnish.models.compact_adamw import (
        CompactAdamW,
        FloatMoments,
        FloatWeights,
        Moments,
        RoundedWeights,
        SplitWeights,
        Weights,
    )

    moments: dict[str, Moments] = {
        "adamw": FloatMoments(torch.float32),
        "adamw16bit": FloatMoments(torch.bfloat16),
        "adamw8bit": EightBitMoments(),
    }
    weights: dict[str, Weights] = {"float32": FloatWeights(), "split": SplitWeights(), "bfloat16": RoundedWeights()}
    return CompactAdamW(groups, moments[optimiser], weights[master_weights])
