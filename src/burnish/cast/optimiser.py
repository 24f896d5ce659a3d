"""AdamW with a schedule of the clock, clipping, and a state that is saved without pickle."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from burnish.nouns import Clock
from burnish.schedules import warmup_then
from burnish.step import Settings


class Optimiser:
    """One trained member's optimiser. Learning rate = settings.lr x the role's multiplier x the schedule."""

    def __init__(self, model: nn.Module, settings: Settings, multiplier: float = 1.0) -> None:
        self.named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.matrices: list[Tensor] = [p for p in self.named.values() if p.ndim >= 2]
        self.vectors: list[Tensor] = [p for p in self.named.values() if p.ndim < 2]
        self.settings, self.multiplier = settings, multiplier
        self.schedule = warmup_then(settings.lr_schedule, settings.lr_warmup)
        self.moments: dict[Tensor, dict[str, Tensor]] = {}  # of each parameter, from its first step on

    def zero(self) -> None:
        for p in self.named.values():
            p.grad = None

    def lr(self, clock: Clock) -> float:
        return self.settings.lr * self.multiplier * self.schedule(clock)

    def leave_out(self, rests: Callable[[str], bool]) -> None:
        """Parameters that rest: their gradients are dropped, and they do not move."""
        for name, p in self.named.items():
            if rests(name):
                p.grad = None

    def clip(self) -> Tensor:
        """Clip the gradient, and say how large it was: a number that may still be on its way.

        On a CPU, where it is there at once, a gradient that is small enough is not multiplied by one.
        """
        limit, found = self.settings.clip or float("inf"), [p.grad for p in self.named.values() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(found)
        if norm.is_cuda or not float(limit / (norm + 1e-6)) >= 1.0:  # as clip_grads_with_norm_ reckons
            torch.nn.utils.clip_grads_with_norm_(self.named.values(), limit, norm)
        return norm

    @torch.no_grad()
    def step(self, clock: Clock, spoilt: Tensor | None = None) -> None:
        """Move the weights by the gradient. Matrices decay, vectors do not. spoilt []: nothing moves if it is 1.

        The device is told what to do before anybody here knows whether the gradient is finite: asking takes as long as moving.
        """
        lr = self.lr(clock)
        for decay, parameters in ((self.settings.weight_decay, self.matrices), (0.0, self.vectors)):
            moving = [p for p in parameters if p.grad is not None]
            if moving:
                self._adamw(moving, decay, lr, spoilt)
                torch.autograd.graph.increment_version(
                    moving
                )  # the operator does not say by itself that it changed them

    def _adamw(self, some: list[Tensor], decay: float, lr: float, spoilt: Tensor | None) -> None:
        """One call of the operator that torch.optim.AdamW calls too; to import torch.optim's own takes a second."""
        kept = [self.moments.get(p) or self._fresh(p) for p in some]
        steps = [m["step"] for m in kept]
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            some, [p.grad for p in some if p.grad is not None], [m["exp_avg"] for m in kept], [m["exp_avg_sq"] for m in kept], [],
            steps, amsgrad=False, lr=lr, beta1=0.9, beta2=0.999, weight_decay=decay, eps=1e-8,
            maximize=False, grad_scale=None, found_inf=spoilt,
        )  # fmt: skip
        if spoilt is not None:
            torch._foreach_sub_(steps, [spoilt] * len(steps))

    def _fresh(self, p: Tensor) -> dict[str, Tensor]:
        self.moments[p] = {
            "step": torch.zeros((), device=p.device),
            "exp_avg": torch.zeros_like(p),
            "exp_avg_sq": torch.zeros_like(p),
        }
        return self.moments[p]

    def state_dict(self) -> dict[str, Tensor]:
        """Moments and counts by parameter name: the live tensors, which the next `step` changes."""
        return {
            f"{key}/{name}": value.detach()
            for name, p in self.named.items()
            for key, value in self.moments.get(p, {}).items()
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for key, value in state.items():
            kind, name = key.split("/", 1)
            p = self.named[name]
            self.moments.setdefault(p, {})[kind] = value.to(p.device, copy=True)
