"""One step of a denoiser as a Gaussian, and its log-density.

A state at noise level t is  x_t = (1 - t) x0 + t eps.  From the network's velocity v (an estimate of eps - x0) follow
estimates of both,  x0 = x - t v  and  eps = x + (1 - t) v.  A step from level t to a lower level s draws
x_s ~ N(mean, std^2). Samplers differ in std alone:

    mean = (1 - s) x0 + sqrt(s^2 - std^2) eps

  ddim         std = s sqrt(1 - a_t / a_s) / sqrt(1 - a_t) x noise, a = (1 - t)^2 / ((1 - t)^2 + t^2): DDIM's eta for
               levels whose shares do not square to one (DDPO, arXiv 2305.13301, with noise 1)
  cps          std = s sin(noise pi / 2): coefficients preserving sampling (arXiv 2509.05952)
  consistency  std = s noise; with noise 1 the largest that is possible: mean (1 - s) x0 (RLCM, arXiv 2404.03673)

The SDEs are Euler's steps of one equation, whose marginals are the ODE's whatever w is:

    mean = x + (v + w^2 / (2 t) eps) (s - t),   std = w sqrt(t - s)

  flow_sde     w = noise sqrt(t / (1 - t)), with the second level in place of t in 1 - t where t is 1
               (Flow-GRPO, arXiv 2505.05470)
  dance_sde    w = noise (DanceGRPO, arXiv 2505.07818); the samples of a prompt begin with the same noise

Without noise all of them are Euler's step of the ODE, x + v (s - t).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Levels = tuple[Tensor, Tensor]  # t and s, broadcastable to the states
Rule = Callable[[Tensor, Tensor, float, float], Tensor]  # t, s, noise, the second level -> std, or w


@dataclass(frozen=True)
class Sampler:
    """A rule for steps.

    std    [..] of a step, of those with one mean
    w      [..] the diffusion of an SDE; one of the two is there
    noise  what the paper says
    same_start  whether the samples of a prompt begin with the same noise
    """

    noise: float
    std: Rule | None = None
    w: Rule | None = None
    same_start: bool = False


def _ddim(t: Tensor, s: Tensor, noise: float, second: float) -> Tensor:
    a_t, a_s = _share(t), _share(s)
    std = s * ((1 - a_t / a_s).clamp(min=0) / (1 - a_t)).sqrt()
    return noise * std


def _share(level: Tensor) -> Tensor:
    return (1 - level) ** 2 / ((1 - level) ** 2 + level**2)


def _cps(t: Tensor, s: Tensor, noise: float, second: float) -> Tensor:
    return s * math.sin(noise * math.pi / 2)


def _consistency(t: Tensor, s: Tensor, noise: float, second: float) -> Tensor:
    return s * noise


def _flow(t: Tensor, s: Tensor, noise: float, second: float) -> Tensor:
    clean = 1 - torch.where(t >= 1, torch.full_like(t, second), t)
    return noise * (t / clean).sqrt()


def _dance(t: Tensor, s: Tensor, noise: float, second: float) -> Tensor:
    return torch.full_like(t, noise)


SAMPLERS = {
    "ddim": Sampler(1.0, std=_ddim),
    "cps": Sampler(0.7, std=_cps),
    "consistency": Sampler(1.0, std=_consistency),
    "flow_sde": Sampler(0.7, w=_flow),
    "dance_sde": Sampler(0.3, w=_dance, same_start=True),
}


def step(sampler: str, noise: float, second: float, x: Tensor, v: Tensor, levels: Levels) -> tuple[Tensor, Tensor]:
    """Mean and std of the state at level s, after the state x at level t where the network says v."""
    t, s = levels
    rule = SAMPLERS[sampler]
    eps = x + (1 - t) * v
    if rule.std is not None:
        std = rule.std(t, s, noise, second)
        return (1 - s) * (x - t * v) + (s**2 - std**2).clamp(min=0).sqrt() * eps, std
    assert rule.w is not None
    w = rule.w(t, s, noise, second)
    return x + (v + w**2 / (2 * t) * eps) * (s - t), w * (t - s).sqrt()


def log_density(x: Tensor, mean: Tensor, std: Tensor, reduce: str) -> Tensor:
    """[n]: log N(x; mean, std^2) of rows: the mean of all entries (as released codes have it) or their sum (papers).

    With the mean, what is called the ratio is the D-th root of the true one; that is why the papers clip at 1e-4.
    """
    each = -((x - mean) ** 2) / (2 * std**2) - std.log() - 0.5 * math.log(2 * math.pi)
    return reduced(each, reduce)


def reduced(each: Tensor, reduce: str) -> Tensor:
    """[n]: the mean or the sum of the entries of each row."""
    flat = each.flatten(1)
    return flat.sum(1) if reduce == "sum" else flat.mean(1)
