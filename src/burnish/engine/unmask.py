"""Sampling from a masked language model: a block of hidden tokens at a time, the surest of them first.

A block stands behind the prompt and the blocks before it, all of its tokens hidden. Each step predicts every hidden
token of the block, draws one for each, and writes those `per_step` whose drawn tokens are the likeliest (low-confidence
remasking of LLaDA, arXiv 2502.09992), or the next ones by chance (order "random"). A reply ends with the block that has
an end in it. Noise belongs to a request, a step and a place: it does not depend on the rest of the batch.

The log-prob of a token is that of the step that wrote it, under the whole distribution: what the view `trajectory` of
forward/masked.py computes again. The choice of the places is not part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from burnish.core.canvas import Canvas
from burnish.core.randomness import uniform
from burnish.engine.protocol import ALONE, GenerateOptions
from burnish.engine.request import Request, Sample, room_in
from burnish.engine.sampling import choose
from burnish.engine.vocabulary import Vocabulary
from burnish.forward.masked import Masked, logits_of, states_of
from burnish.forward.paths import evaluating
from burnish.forward.prefix_tree import Numbers
from burnish.forward.runner import ModelRunner

ROWS = 256  # read together
PLACE = 1 << 20  # a step's noise is keyed by step x PLACE + place


@dataclass
class _Reply:
    """A reply that is being written."""

    request: Request
    limit: int
    tokens: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    step: int = 0
    open: list[int] = field(default_factory=list)  # the places of its block that are hidden

    def begin(self, block: int, mask: int) -> None:
        start = len(self.tokens)
        self.open = list(range(start, start + block))
        self.tokens += [mask] * block
        self.logp += [0.0] * block
        self.steps += [0] * block

    def read(self, prompt: Numbers) -> Numbers:
        return np.concatenate([prompt, np.array(self.tokens, dtype=np.int64)])


class UnmaskEngine:
    """Samples replies from a masked language model in this process, with the results of LocalEngine."""

    def __init__(self, runner: ModelRunner, known: Masked, chat: Vocabulary, context: int) -> None:
        self.runner, self.known, self.chat, self.context = runner, known, chat, context

    @torch.no_grad()
    def generate(self, requests: list[Request], options: GenerateOptions = ALONE) -> list[Sample]:
        """A sample for each request, in order (engine/protocol.py)."""
        options.require_whole(requests, "fills in hidden tokens", "writes whole replies from all tokens")
        if options.feed is not None:
            return options.in_rounds(self.generate, requests)
        samples: list[Sample] = []
        with evaluating([self.runner.module]):
            for begin in range(0, len(requests), ROWS):
                some = self._written(requests[begin : begin + ROWS])
                for number, sample in enumerate(some, begin):
                    if options.on_sample is not None:
                        options.on_sample(number, sample)
                samples += some
        return samples

    def _written(self, requests: list[Request]) -> list[Sample]:
        """These requests, block after block side by side; those that have ended leave."""
        replies = [_Reply(one, min(one.max_new, room_in(self.context, len(one.prompt)))) for one in requests]
        prompts = [one.prompt.numpy() for one in requests]
        going = list(range(len(replies)))
        while going:
            for i in going:
                if not replies[i].open:
                    replies[i].begin(self.known.block, self.known.mask)
            self._step([replies[i] for i in going], [prompts[i] for i in going])
            going = [i for i in going if replies[i].open or not self._ended(replies[i])]
        return [self._sample(reply) for reply in replies]

    def _step(self, replies: list[_Reply], prompts: list[Numbers]) -> None:
        """One forward of all replies; each writes some of the hidden tokens of its block."""
        module: nn.Module = self.runner.module
        states = states_of(module, [r.read(p) for r, p in zip(replies, prompts, strict=True)])
        counts = [len(reply.open) for reply in replies]
        row = np.repeat(np.arange(len(replies)), counts)
        places = np.concatenate([reply.open for reply in replies])
        at = places + np.repeat([len(prompt) for prompt in prompts], counts)
        logits = logits_of(module, self.known, states[torch.from_numpy(row), torch.from_numpy(at)])
        heats = torch.tensor([reply.request.temperature for reply in replies], dtype=logits.dtype, device=logits.device)
        keys = torch.tensor([reply.request.key for reply in replies], device=logits.device)
        of = torch.from_numpy(row).to(logits.device)
        noise = torch.from_numpy(places + np.repeat([reply.step * PLACE for reply in replies], counts)).to(of)
        greedy = heats[of] == 0
        factor = torch.where(greedy, torch.ones_like(heats[of]), 1 / heats[of].clamp(min=1e-6))
        tokens, logps = choose(logits, factor, keys[of], noise, greedy)
        sure = -uniform(keys[of] ^ 0x5DEECE66D, noise) if self.known.by_chance else logps.double()
        self._write(replies, counts, tokens.cpu(), logps.float().cpu(), sure.cpu())

    def _write(self, replies: list[_Reply], counts: list[int], tokens: Tensor, logps: Tensor, sure: Tensor) -> None:
        for reply, some, their, how in zip(
            replies, tokens.split(counts), logps.split(counts), sure.split(counts), strict=True
        ):
            chosen = sorted(how.argsort(descending=True, stable=True)[: self.known.per_step].tolist())
            for k in chosen:
                place = reply.open[k]
                reply.tokens[place], reply.logp[place] = int(some[k]), float(their[k])
                reply.steps[place] = reply.step
            reply.open = [place for k, place in enumerate(reply.open) if k not in chosen]
            reply.step += 1

    def _end(self, reply: _Reply) -> int | None:
        """How many tokens the reply has up to its end; None where it has none yet."""
        ends = [at for at, token in enumerate(reply.tokens) if token in self.chat.stops]
        return ends[0] + 1 if ends and ends[0] < reply.limit else None

    def _ended(self, reply: _Reply) -> bool:
        return self._end(reply) is not None or len(reply.tokens) >= reply.limit

    def _sample(self, reply: _Reply) -> Sample:
        end = self._end(reply)
        length = reply.limit if end is None else end
        canvas = Canvas(
            torch.tensor(reply.tokens, dtype=torch.long),
            torch.tensor(reply.steps, dtype=torch.int32),
            self.known.block,
        )
        tokens, logp = torch.tensor(reply.tokens[:length]), torch.tensor(reply.logp[:length])
        return Sample(tokens, logp, "length" if end is None else "stop", canvas=canvas)
