"""Sampling from a denoiser: from noise to a picture in K steps, all requests side by side.

Noise belongs to a request and a step: it does not depend on the rest of the batch. The reply is K - 1 media ids that
name the picture (media/drawn.py), one for each step that drew; the step to level 0 draws nothing. Their log-probs are
those of the steps, which the view `trajectory` of forward/denoise.py computes again. At temperature T a sampler's noise
is T times as much; at 0 the picture is the ODE's from its own beginning, and its steps have no log-prob.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from burnish.core.canvas import Chain
from burnish.core.randomness import generator
from burnish.engine.protocol import ALONE, GenerateOptions
from burnish.engine.request import Request, Sample, room_in
from burnish.forward.denoise import Denoising, estimate, pixels_of
from burnish.forward.gaussian import SAMPLERS, log_density, step
from burnish.forward.paths import evaluating
from burnish.forward.runner import ModelRunner
from burnish.media import drawn
from burnish.media.ids import ids_of

ROWS = 256  # drawn together


class DenoiseEngine:
    """Draws pictures with a denoiser in this process, with the results of LocalEngine."""

    def __init__(self, runner: ModelRunner, known: Denoising, context: int) -> None:
        self.runner, self.known, self.context = runner, known, context

    @torch.no_grad()
    def generate(self, requests: list[Request], options: GenerateOptions = ALONE) -> list[Sample]:
        """A sample for each request, in order (engine/protocol.py)."""
        options.require_whole(requests, "draws", "makes whole pictures")
        if options.feed is not None:
            return options.in_rounds(self.generate, requests)
        by_noise: dict[float, list[int]] = {}
        for number, request in enumerate(requests):
            room_in(self.context, len(request.prompt))
            by_noise.setdefault(request.temperature * self.known.noise, []).append(number)
        samples: dict[int, Sample] = {}
        with evaluating([self.runner.module]):
            for noise, numbers in by_noise.items():
                for begin in range(0, len(numbers), ROWS):
                    some = numbers[begin : begin + ROWS]
                    for number, sample in zip(some, self._drawn([requests[i] for i in some], noise), strict=True):
                        samples[number] = sample
                        if options.on_sample is not None:
                            options.on_sample(number, sample)
        return [samples[number] for number in range(len(requests))]

    def _drawn(self, requests: list[Request], noise: float) -> list[Sample]:
        """These requests, step after step."""
        known, module = self.known, self.runner.module
        device, levels = next(module.parameters()).device, known.levels()
        captions = [request.prompt.numpy() for request in requests]
        x = torch.stack([self._noise(request, None) for request in requests]).to(device)
        states, logps = [x], []
        for k, (t, s) in enumerate(zip(levels[:-1], levels[1:], strict=True)):
            at = torch.full((len(x), 1, 1, 1), t, device=device)
            v = estimate(module, known, x, at.flatten(), captions, known.guidance)
            mean, std = step(known.sampler, noise, levels[1], x, v, (at, torch.full_like(at, s)))
            if s == 0:
                x = x - t * v
                break
            if noise:
                fresh = torch.stack([self._noise(request, k) for request in requests]).to(device)
                x = mean + std * fresh
                logps.append(log_density(x, mean, std, known.reduce))
            else:
                x = mean
                logps.append(torch.zeros(len(x), device=device))
            states.append(x)
        return self._samples(x, torch.stack(states, 1).cpu(), torch.stack(logps, 1).float().cpu(), levels, noise)

    def _noise(self, request: Request, step: int | None) -> Tensor:
        """What a request begins with (None), or draws in a step."""
        whose: tuple[object, ...] = (request.key, step)
        if step is None and SAMPLERS[self.known.sampler].same_start:
            whose = (self.known.at, request.prompt.numpy().tobytes())
        dice = generator("noise", *whose)
        return torch.from_numpy(dice.standard_normal(self.known.shape).astype(np.float32))

    def _samples(
        self, x: Tensor, states: Tensor, logps: Tensor, levels: tuple[float, ...], noise: float
    ) -> list[Sample]:
        samples = []
        for picture, row, logp in zip(x, states, logps, strict=True):
            tokens = torch.from_numpy(ids_of(drawn.kept(pixels_of(picture)), len(levels) - 2))
            chain = Chain(row.clone(), levels, self.known.sampler, noise, self.known.guidance)
            samples.append(Sample(tokens, logp, "stop", canvas=chain))
        return samples
