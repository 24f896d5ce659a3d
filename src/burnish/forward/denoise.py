"""Outputs of a denoiser: a model that draws a picture by removing noise, one Gaussian step after the other.

A step that draws is a token (core/canvas.py), so whatever is made of numbers a token (ratios, advantages, pairs, KL)
holds for denoisers as it does for words. What is taken for the log-prob of a picture is the view:

  trajectory  of a picture that a model drawn step by step: the Gaussian log-density of each step (forward/gaussian.py)
  random      of a given picture, which is one token: -1/2 |v - v_theta(x_t, t)|^2 at a level t ~ U(0, 1) with noise of
              its own, v = eps - x0; up to a constant and weights of levels a bound of log p. Imitation is then the
              loss of flow matching, and the loss of DPO that of Diffusion-DPO (arXiv 2311.12908) and Flow-DPO (arXiv
              2501.13918). `draws` of them are averaged. Level and noise are a function of row and step of the run,
              so that policy and reference are compared on the same ones.

Outputs of a token: "logp", "entropy" (of the Gaussian), "std" [n], and "drift" [n, D], the mean over std, scaled so
that half the squared distance of two is the KL of two such steps as `reduce` counts it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from burnish.core.canvas import Chain
from burnish.core.randomness import generator
from burnish.core.types import Drawn
from burnish.forward.asked import Asked
from burnish.forward.drawn import Temperature
from burnish.forward.gaussian import SAMPLERS, log_density, reduced, step
from burnish.forward.module import bare
from burnish.forward.packing import send
from burnish.forward.prefix_tree import Numbers
from burnish.media import drawn as drawings
from burnish.media.ids import FIRST, split

KIND = "burnish_flow"  # model_type of config.json (models/flow_model.py)
OUTPUTS = frozenset({"logp", "entropy", "drift", "std"})
REDUCED = ("mean", "sum")
ROWS = 1024  # states that are looked at at once


class FlowModule(Protocol):
    """What a denoiser computes: states of a caption, and the velocity of a state of the picture."""

    def encode(self, ids: Tensor, real: Tensor) -> Tensor:
        """[B, T, H] from token ids [B, T], of which those are real where `real` is 1."""
        ...

    def velocity(self, x: Tensor, levels: Tensor, caption: Tensor, real: Tensor) -> Tensor:
        """[B, C, H, W]: the estimate of noise - picture in states x at levels [B], by the captions [B, T, H]."""
        ...


@dataclass(frozen=True)
class Denoising:
    """How a denoiser draws, and how its steps are counted.

    shape    channels, height and width of a picture
    null     the tokens of no caption
    steps    from noise to the picture; all but the last are tokens
    sampler  by name (forward/gaussian.py), and how much noise it draws
    guidance  v = v_0 + guidance (v_caption - v_0): the policy is the guided model (arXiv 2207.12598)
    reduce   the log-density is the mean of all pixels' (as released codes have it) or their sum (as papers have it)
    draws    levels that view `random` averages over
    at       of the run: other levels and noise are drawn in each step; -1 outside of steps
    """

    shape: tuple[int, int, int]
    null: tuple[int, ...]
    steps: int = 10
    sampler: str = "flow_sde"
    noise: float = 0.7
    guidance: float = 1.0
    reduce: str = "mean"
    draws: int = 1
    at: int = -1

    def levels(self) -> tuple[float, ...]:
        """K + 1 levels from 1 to 0."""
        return tuple(1 - k / self.steps for k in range(self.steps)) + (0.0,)


@dataclass(frozen=True)
class HowDrawn:
    """What a run says of denoisers; "" and None: what the method and the model say."""

    steps: int | None = None
    sampler: str = ""
    noise: float | None = None
    guidance: float | None = None
    reduce: str = "mean"

    def of(self, known: Denoising, sampler: str) -> Denoising:
        """How a model of the run draws, whose method wants a sampler."""
        name = self.sampler or sampler or known.sampler
        noise = SAMPLERS[name].noise if self.noise is None else self.noise
        return replace(
            known,
            sampler=name,
            noise=noise,
            steps=self.steps or known.steps,
            guidance=known.guidance if self.guidance is None else self.guidance,
            reduce=self.reduce,
        )


_OF: WeakKeyDictionary[nn.Module, Denoising | None] = WeakKeyDictionary()


def denoising_of(module: nn.Module) -> Denoising | None:
    """How a denoiser draws; None for a model of words."""
    if module not in _OF:
        config = bare(module).config
        if getattr(config, "model_type", "") != KIND:
            _OF[module] = None
        else:
            shape = (config.channels, config.side, config.side)
            _OF[module] = Denoising(shape, (int(config.eos_token_id),), steps=config.steps)
    return _OF[module]


def set_denoising(module: nn.Module, known: Denoising) -> None:
    """Change how a denoiser draws: its sampler, its steps, the step of the run."""
    _OF[module] = known


def outputs(
    module: nn.Module,
    known: Denoising,
    tokens: Sequence[Tensor | Numbers],
    masks: list[Tensor],
    want: set[str],
    drawn: Drawn | Temperature = 1.0,
) -> dict[str, Tensor]:
    """What forward/outputs.py's `outputs` returns: flat in row order, [N] or [N, D]."""
    if beyond := want - OUTPUTS:
        raise ValueError(
            f"a model that draws has no {' and no '.join(sorted(beyond))}: its steps are Gaussians and not words; use "
            "a method without it, such as flow_grpo or ddpo"
        )
    rows = [row.numpy() if isinstance(row, Tensor) else row for row in tokens]
    asked = Asked.of(masks)
    canvases = drawn.canvases if isinstance(drawn, Drawn) else None
    work = _Work(known)
    for number, row in enumerate(rows):
        at = asked.at[asked.row == number]
        if len(at):
            work.add(row, at, None if canvases is None else canvases[number])
    device = next(module.parameters()).device
    if not work.x:
        shape = {"drift": (0, math.prod(known.shape))}
        return {name: torch.zeros(shape.get(name, (0,)), device=device) for name in want}
    return {name: value[work.order(device)] for name, value in work.computed(module, device, want).items()}


@dataclass
class _Work:
    """Steps of chains, and given pictures, whose numbers are asked for: one entry a state that is looked at."""

    known: Denoising
    x: list[Tensor] = field(default_factory=list)
    after: list[Tensor] = field(default_factory=list)  # the next state; of a given picture the velocity
    levels: list[tuple[float, float, float]] = field(default_factory=list)  # t, s, the second of its chain
    how: list[tuple[str, float, float]] = field(default_factory=list)  # sampler ("" for a given one), noise, guidance
    captions: list[Numbers] = field(default_factory=list)

    def add(self, row: Numbers, at: Numbers, canvases: Sequence[tuple[int, int, object]] | None) -> None:
        """The tokens of one row that are asked about."""
        media = np.flatnonzero(row >= FIRST)
        if not len(media) or int(at.min()) < int(media[0]):
            raise ValueError(
                "a model that draws is asked about words, which it reads and does not write; its replies in the data "
                "are pictures (docs/denoisers.md)"
            )
        chains = {begin: (end, chain) for begin, end, chain in canvases or () if isinstance(chain, Chain)}
        begin = int(media[0])
        end, chain = chains.get(begin, (begin + 1, None))
        if int(at.max()) >= end:
            raise ValueError("a model that draws is asked about several pictures in a row, or about words after one")
        for place in at.tolist():
            self.captions.append(row[:begin])
            if chain is None:
                self._given(row, begin)
            else:
                self._step(chain, place - begin)

    def _step(self, chain: Chain, k: int) -> None:
        self.x.append(chain.states[k])
        self.after.append(chain.states[k + 1])
        self.levels.append((chain.levels[k], chain.levels[k + 1], chain.levels[1]))
        self.how.append((chain.sampler, chain.noise, chain.guidance))

    def _given(self, row: Numbers, begin: int) -> None:
        """A picture of the data, at levels and with noise that belong to the row and the step of the run."""
        key = int(split(row[begin : begin + 1])[0][0])
        picture = scaled(drawings.pixels_of(key))
        if tuple(picture.shape) != self.known.shape:
            raise ValueError(
                f"a picture of the data has the shape {tuple(picture.shape)}, and the model draws {self.known.shape}"
            )
        dice = generator("level", self.known.at, row.tobytes())
        level = float(dice.random())
        noise = torch.from_numpy(dice.standard_normal(self.known.shape).astype(np.float32))
        self.x.append((1 - level) * picture + level * noise)
        self.after.append(noise - picture)
        self.levels.append((level, 0.0, 0.0))
        self.how.append(("", 0.0, 1.0))

    def _same(self) -> list[list[int]]:
        """Numbers of the entries, those together that are computed in one way."""
        by_kind: dict[tuple[object, ...], list[int]] = {}
        for number, how in enumerate(self.how):
            by_kind.setdefault((how, self.levels[number][2]), []).append(number)
        return [some[a : a + ROWS] for some in by_kind.values() for a in range(0, len(some), ROWS)]

    def order(self, device: torch.device) -> Tensor:
        """Where the entries stand in what `computed` returns."""
        return torch.tensor([n for some in self._same() for n in some]).argsort().to(device)

    def computed(self, module: nn.Module, device: torch.device, want: set[str]) -> dict[str, Tensor]:
        parts = [self._part(module, device, some, want) for some in self._same()]
        return {name: torch.cat([part[name] for part in parts]) for name in want}

    def _part(self, module: nn.Module, device: torch.device, some: list[int], want: set[str]) -> dict[str, Tensor]:
        (sampler, noise, guidance), second = self.how[some[0]], self.levels[some[0]][2]
        x, after = (send(torch.stack([column[n] for n in some]), device) for column in (self.x, self.after))
        levels = send(torch.tensor([self.levels[n][:2] for n in some]), device)
        v = estimate(module, self.known, x, levels[:, 0], [self.captions[n] for n in some], guidance)
        if not sampler:
            logp = -0.5 * reduced((after - v) ** 2, self.known.reduce)
            none, one = torch.zeros_like(logp), torch.ones_like(logp)
            return {"logp": logp, "entropy": none, "std": one, "drift": self._drift(v)}
        wide = levels.view(-1, 2, 1, 1, 1)
        mean, std = step(sampler, noise, second, x, v, (wide[:, 0], wide[:, 1]))
        if not bool((std > 0).all()):
            raise ValueError(
                "a picture was drawn without noise, so its steps have no log-prob; sample with --denoise-noise"
            )
        entropy = std.log() + 0.5 * math.log(2 * math.pi * math.e)
        return {
            "logp": log_density(after, mean, std, self.known.reduce),
            "entropy": reduced(entropy.expand_as(x), self.known.reduce),
            "drift": self._drift(mean / std),
            "std": std.flatten(),
        }

    def _drift(self, standard: Tensor) -> Tensor:
        flat = standard.flatten(1)
        return flat if self.known.reduce == "sum" else flat / math.sqrt(flat.shape[1])


def scaled(pixels: np.ndarray) -> Tensor:
    """[3, H, W] from -1 to 1, from pixels [H, W, 3]."""
    return torch.from_numpy(pixels.astype(np.float32) / 127.5 - 1).permute(2, 0, 1).contiguous()


def pixels_of(x: Tensor) -> np.ndarray:
    """[H, W, 3]: the pixels of a picture [3, H, W] from -1 to 1."""
    pixels: np.ndarray = ((x.permute(1, 2, 0).float().cpu().clamp(-1, 1) + 1) * 127.5).round().byte().numpy()
    return pixels


def estimate(
    module: nn.Module, known: Denoising, x: Tensor, levels: Tensor, captions: Sequence[Numbers], guidance: float
) -> Tensor:
    """The velocity at states x [B, C, H, W] and levels [B], guided away from the one without a caption."""
    v = _velocity(module, x, levels, captions)
    if guidance == 1.0:
        return v
    free = _velocity(module, x, levels, [np.array(known.null, dtype=np.int64)] * len(captions))
    return free + guidance * (v - free)


def _velocity(module: nn.Module, x: Tensor, levels: Tensor, captions: Sequence[Numbers]) -> Tensor:
    """Each caption is read once, however many states belong to it."""
    net = cast("FlowModule", bare(module))
    numbers: dict[bytes, int] = {}
    which = [numbers.setdefault(row.tobytes(), len(numbers)) for row in captions]
    distinct = {which[i]: row for i, row in enumerate(captions)}
    width = max(map(len, distinct.values()))
    ids = np.zeros((len(distinct), width), dtype=np.int64)
    real = np.zeros((len(distinct), width), dtype=np.int64)
    for i, row in distinct.items():
        ids[i, : len(row)], real[i, : len(row)] = row, 1
    shown = send(torch.from_numpy(real), x.device)
    states = net.encode(send(torch.from_numpy(ids), x.device), shown)
    of = send(torch.tensor(which), x.device)
    return net.velocity(x, levels.to(x.dtype), states[of], shown[of])
