"""AdamW with a schedule of the clock, clipping, and a state that is saved without pickle."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from burnish.nouns import Clock
from burnish.refusal import NotFinite
from burnish.schedules import warmup_then
from burnish.step import Settings


class Optimiser:
    """One trained member's optimiser. Learning rate = settings.lr x the role's multiplier x the schedule."""

    def __init__(self, model: nn.Module, settings: Settings, multiplier: float = 1.0) -> None:
        self.named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.settings, self.multiplier = settings, multiplier
        self.schedule = warmup_then(settings.lr_schedule, settings.lr_warmup)
        decayed = [p for p in self.named.values() if p.ndim >= 2]
        plain = [p for p in self.named.values() if p.ndim < 2]
        groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        self.adamw = torch.optim.AdamW(
            [g for g in groups if g["params"]], lr=settings.lr, betas=(0.9, 0.999), fused=True
        )

    def zero(self) -> None:
        self.adamw.zero_grad(set_to_none=True)

    def lr(self, clock: Clock) -> float:
        return self.settings.lr * self.multiplier * self.schedule(clock)

    def leave_out(self, rests: Callable[[str], bool]) -> None:
        """Parameters that rest: their gradients are dropped, and they do not move."""
        for name, p in self.named.items():
            if rests(name):
                p.grad = None

    def clip(self) -> float:
        """Clip the gradient, and say how large it was; one that is not finite is refused."""
        limit = self.settings.clip or float("inf")
        norm = float(torch.nn.utils.clip_grad_norm_(self.named.values(), limit))
        if not math.isfinite(norm):
            raise NotFinite(f"the gradient's norm is {norm}")
        return norm

    def step(self, clock: Clock) -> None:
        """Move the weights by the gradient."""
        for group in self.adamw.param_groups:
            group["lr"] = self.lr(clock)
        self.adamw.step()

    def state_dict(self) -> dict[str, Tensor]:
        """Moments and counts by parameter name: the live tensors, which the next `step` changes."""
        return {
            f"{key}/{name}": value.detach()
            for name, p in self.named.items()
            for key, value in self.adamw.state.get(p, {}).items()
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for key, value in state.items():
            kind, name = key.split("/", 1)
            p = self.named[name]
            self.adamw.state[p][kind] = value.clone() if kind == "step" else value.to(p.device, copy=True)
