"""The embedded engine: it samples with the very weights that are trained, so there is nothing to synchronise.

Prompts that several requests share are read once. Rows that have stopped leave the batch. The log-prob of every
sampled token comes from the pass that sampled it. Randomness is counter-based: a request's noise depends on its own
key and on the position of the token, never on its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from burnish.cast.blend import Mix
from burnish.cast.chat import Chat
from burnish.cast.forward import decoder, head
from burnish.cast.kv import new_cache
from burnish.randomness import uniform

MAX_ROWS = 512  # rows decoded together


@dataclass(frozen=True)
class Request:
    """One reply to sample: after `prompt`, with noise keyed by `key`.

    temperature 0 is greedy. top_k 0 and top_p 1 are off. The log-probs that come back are those of the whole
    distribution at the request's temperature (at 1 when greedy), before top_k and top_p.
    """

    prompt: Tensor
    key: int
    max_new: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True)
class Sample:
    """A sampled reply: its tokens (the stop token included), their log-probs, and why it ended (stop or length)."""

    tokens: Tensor
    logp: Tensor
    stopped: str


class LocalEngine:
    """Samples replies from a model in this process."""

    def __init__(self, model: nn.Module, chat: Chat, context: int) -> None:
        self.model, self.chat, self.context = model, chat, context

    @torch.no_grad()
    def generate(
        self, requests: list[Request], others: Sequence[nn.Module] = (), mix: Mix | None = None
    ) -> list[Sample]:
        """A sample for each request, in order; from `mix` of this model's logits and those of `others`, if given."""
        for request in requests:
            if len(request.prompt) >= self.context:
                raise ValueError(
                    f"a prompt has {len(request.prompt)} tokens, but the model's context holds {self.context}: "
                    "shorten the prompt or drop such rows from the dataset"
                )
        order = sorted(range(len(requests)), key=lambda i: len(requests[i].prompt))
        found: dict[int, Sample] = {}
        training = self.model.training
        self.model.eval()  # a model that recomputes activations would leave the cache out
        for start in range(0, len(order), MAX_ROWS):
            wave = order[start : start + MAX_ROWS]
            found.update(zip(wave, self._wave([requests[i] for i in wave], others, mix), strict=True))
        self.model.train(training)
        return [found[i] for i in range(len(requests))]

    def _wave(self, requests: list[Request], others: Sequence[nn.Module], mix: Mix | None) -> list[Sample]:
        device = next(self.model.parameters()).device
        state = _Wave(requests, self.context, self.chat.stops, device)
        readers = [_Reader(model, state.width + state.longest) for model in (self.model, *others)]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = [reader(state.prompts, state.prompt_mask, state.prompt_positions) for reader in readers]
            logits = [found[state.which] for found in logits]
            for reader in readers:
                reader.cache.pick(state.which)
            while True:
                alive = state.take(mix(logits) if mix else logits[0])
                if not len(state.row):
                    return state.samples()
                if alive is not None:
                    for reader in readers:
                        reader.cache.pick(alive)
                logits = [reader(state.last[:, None], state.mask(), state.positions[:, None]) for reader in readers]


class _Reader:
    """One model and its cache of what it has read."""

    def __init__(self, model: nn.Module, capacity: int) -> None:
        self.model, self.cache = model, new_cache(model, capacity)

    def __call__(self, ids: Tensor, mask: Tensor | None, positions: Tensor) -> Tensor:
        """[rows, V]: the logits after the last of these tokens."""
        out = decoder(self.model)(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=self.cache, use_cache=True
        )
        return head(self.model, out.last_hidden_state[:, -1])


class _Wave:
    """The rows that are decoded together: prompts padded on the left, so that all rows write the same cache column."""

    def __init__(self, requests: list[Request], context: int, stops: tuple[int, ...], device: torch.device) -> None:
        self.device = device
        unique: dict[tuple[int, ...], int] = {}
        self.which = torch.tensor(
            [unique.setdefault(tuple(r.prompt.tolist()), len(unique)) for r in requests], device=device
        )
        self.width = max(len(p) for p in unique)
        self.prompts = torch.zeros(len(unique), self.width, dtype=torch.long)
        pad = torch.zeros(len(unique), self.width, dtype=torch.long)
        for prompt, i in unique.items():
            self.prompts[i, self.width - len(prompt) :] = torch.tensor(prompt)
            pad[i, self.width - len(prompt) :] = 1
        self.padded = bool((pad == 0).any())
        self.prompts, pad = self.prompts.to(device), pad.to(device)
        self.prompt_mask = pad if self.padded else None
        self.prompt_positions = (pad.cumsum(-1) - 1).clamp(min=0)
        self.limits = torch.tensor([min(r.max_new, context - len(r.prompt)) for r in requests], device=device)
        self.longest = int(self.limits.max())
        self.row = torch.arange(len(requests), device=device)  # the request of each living row
        self.pad = pad[self.which]
        self.positions = torch.tensor([len(r.prompt) for r in requests], device=device) - 1
        self.keys = torch.tensor([r.key for r in requests], device=device)
        self.temperature = torch.tensor([r.temperature for r in requests], device=device)
        self.top_k = torch.tensor([r.top_k for r in requests], device=device)
        self.top_p = torch.tensor([r.top_p for r in requests], device=device)
        self.filtered = any(r.top_k or r.top_p < 1 for r in requests)
        self.stops = torch.tensor(stops, device=device)
        self.tokens = torch.zeros(len(requests), self.longest, dtype=torch.long, device=device)
        self.logp = torch.zeros(len(requests), self.longest, device=device)
        self.length = torch.zeros(len(requests), dtype=torch.long, device=device)
        self.done = torch.zeros(len(requests), dtype=torch.bool, device=device)
        self.ended = torch.zeros(len(requests), dtype=torch.bool, device=device)
        self.at = 0
        self.last = torch.zeros(0, dtype=torch.long, device=device)

    def mask(self) -> Tensor | None:
        """[rows, cache columns]: 1 where a row's own tokens are; none is needed where no prompt was padded."""
        if not self.padded:
            return None
        return torch.cat([self.pad, self.pad.new_ones(len(self.pad), self.at)], dim=1)

    def take(self, logits: Tensor) -> Tensor | None:
        """Sample one token for every living row. Returns which rows go on, once enough have ended to let them go."""
        self.positions = self.positions + 1
        greedy = self.temperature == 0
        logits = logits.float() / torch.where(greedy, 1.0, self.temperature)[:, None]
        logp = torch.log_softmax(logits, -1)
        u = uniform(self.keys, self.positions)
        weights = self._filter(logp).exp() if self.filtered else logp.exp()
        cumulative = weights.double().cumsum(-1)
        chosen = torch.searchsorted(cumulative, (u * cumulative[:, -1])[:, None], right=True)[:, 0]
        chosen = torch.where(greedy, logits.argmax(-1), chosen.clamp(max=logits.shape[-1] - 1))
        finished = self.done[self.row]
        self.tokens[self.row, self.at] = chosen
        self.logp[self.row, self.at] = logp.gather(-1, chosen[:, None])[:, 0]
        self.length[self.row] += (~finished).long()
        stop = torch.isin(chosen, self.stops) & ~finished
        self.ended[self.row] |= stop
        self.done[self.row] = finished | stop | (self.length[self.row] >= self.limits[self.row])
        self.at += 1
        self.last = chosen
        return self._let_go()

    def _filter(self, logp: Tensor) -> Tensor:
        """-inf outside the top_k most likely tokens and outside the smallest set that holds top_p of the probability."""
        ranked, index = logp.sort(-1, descending=True)
        rank = torch.arange(logp.shape[-1], device=self.device)
        keep = (self.top_k[:, None] == 0) | (rank < self.top_k[:, None])
        before = ranked.exp().cumsum(-1) - ranked.exp()
        keep &= (before < self.top_p[:, None]) | (rank == 0)
        return torch.full_like(logp, -torch.inf).scatter(-1, index, ranked.masked_fill(~keep, -torch.inf))

    def _let_go(self) -> Tensor | None:
        living = ~self.done[self.row]
        n = int(living.sum())
        if n > 0.75 * len(living) and n:
            return None
        kept = living.nonzero()[:, 0]
        for name in ("row", "pad", "positions", "keys", "temperature", "top_k", "top_p", "last"):
            setattr(self, name, getattr(self, name)[kept])
        return kept

    def samples(self) -> list[Sample]:
        tokens, logp, lengths, ended = self.tokens.cpu(), self.logp.cpu(), self.length.tolist(), self.ended.tolist()
        return [
            Sample(tokens[i, :n].clone(), logp[i, :n].clone(), "stop" if stop else "length")
            for i, (n, stop) in enumerate(zip(lengths, ended, strict=True))
        ]
