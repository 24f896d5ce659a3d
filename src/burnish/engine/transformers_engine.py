"""Sampling through transformers' own attention and cache: slower than the engine, right for every decoder.

It serves models whose layers the engine does not know: soft-capped scores, attention sinks, latent attention, ALiBi,
short convolutions, linear attention, state-space layers. Requests whose prompts have one length are decoded together,
so no row is ever padded. Noise, limits, stops and log-probs are those of the engine (engine/batch.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from burnish.engine.batch import RunningBatch, sampling_of
from burnish.engine.protocol import ALONE, GenerateOptions
from burnish.engine.request import (
    Prompt,
    Request,
    Sample,
    Stopped,
    end_of,
    limits_of,
    prompts_of,
    room_in,
)
from burnish.engine.vocabulary import Vocabulary
from burnish.forward.module import bare, decoder, vocabulary_size, wide
from burnish.forward.paths import Paths, evaluating, paths_of
from burnish.forward.runner import ModelRunner
from burnish.forward.sight import Sight, sight_of
from burnish.media.ids import media_in

ROWS = 64  # decoded together
LOGITS = 1 << 28  # that a forward of prompts may give where the head reads all tokens: rows x tokens x vocabulary
CACHES = ("past_key_values", "cache_params", "state")  # the names under which models return theirs, and take it


class TransformersEngine:
    """Samples replies from a model in this process, with the arguments and results of LocalEngine.

    paths  what is right for the models that it runs; None: what was noted of each (forward/paths.py)
    """

    def __init__(self, runner: ModelRunner, chat: Vocabulary, context: int, paths: Paths | None = None) -> None:
        self.runner, self.chat, self.context, self.paths = runner, chat, context, paths

    @torch.no_grad()
    def generate(self, requests: list[Request], options: GenerateOptions = ALONE) -> list[Sample]:
        """A sample for each request, in order: see LocalEngine.generate."""
        if options.feed is not None:
            return options.in_rounds(self.generate, requests)
        if not requests:
            return []
        runners = (self.runner, *options.others)
        with evaluating([runner.module for runner in runners]):
            return _Call(self, requests, runners, options).run()


class _Decoder:
    """One model and transformers' cache of rows of one length, which grow by a token at a time."""

    def __init__(self, runner: ModelRunner, paths: Paths | None) -> None:
        self.runner, self.model = runner, runner.module
        self.paths = paths or paths_of(runner.module)
        self.cached = self.paths.cached and runner.has_cache
        self.cache: dict[str, object] = {}
        self.sight = sight_of(runner.module)
        self.read = 0  # tokens of each row that the cache holds

    def next(self, rows: Tensor) -> Tensor:
        """[B, V]: the logits after rows [B, T]."""
        if self.sight is not None and media_in(rows):
            self.sight.check(list(rows.cpu().numpy()))
            if not self.paths.padded or self.sight.together:
                return self.runner.logits(self.sight.states(rows)[:, -1])
        new = rows[:, self.read :] if self.cached else rows
        run = decoder(self.model) if self.paths.padded else bare(self.model)
        inputs = {"input_ids": new} if self.sight is None else self._seen(self.sight, rows, new)
        result = run(**inputs, use_cache=self.cached, **self.cache)
        if self.cached:
            self.cache = {name: result[name] for name in CACHES if result.get(name) is not None}
            self.read = rows.shape[1]
        if self.paths.padded:
            return self.runner.logits(result.last_hidden_state[:, -1])
        return wide(result.logits[:, -1])

    def _seen(self, sight: Sight, rows: Tensor, new: Tensor) -> dict[str, Any]:
        """The input of a model that sees: its pictures as vectors, and positions where they are not plain numbers."""
        inputs: dict[str, Any] = dict(sight.read(new))
        if sight.axes and self.paths.padded and media_in(rows):
            inputs["position_ids"] = sight.placed(rows.cpu().numpy())[..., -new.shape[1] :].to(rows.device)
        return inputs


class _Call:
    """One call of the engine."""

    def __init__(
        self,
        engine: TransformersEngine,
        requests: list[Request],
        runners: Sequence[ModelRunner],
        options: GenerateOptions,
    ) -> None:
        self.engine, self.requests, self.runners = engine, requests, runners
        self.mix, self.stop_rule, self.on_sample = options.mix, options.stop_rule, options.on_sample
        self.device = next(engine.runner.module.parameters()).device
        self.prompts, self.of = prompts_of(requests)
        self.limits = limits_of(requests, self.prompts, lambda length: room_in(engine.context, length))
        self.filtered = any(request.filtered for request in requests)
        self.samples: dict[int, Sample] = {}
        self.vocabulary = vocabulary_size(engine.runner.module)

    def run(self) -> list[Sample]:
        for numbers in self._batches():
            waiting = [i for i in numbers if i not in self.samples]  # others of their prompts may have been enough
            if waiting:
                self._decode(waiting)
        return [self.samples[i] for i in range(len(self.requests))]

    def _batches(self) -> Iterator[list[int]]:
        """Numbers of requests whose prompts have one length, those of one prompt together, longest prompts first."""
        for length, some in groupby(sorted(self.prompts, key=lambda p: -p.length), key=lambda p: p.length):
            numbers = [i for prompt in some for i in prompt.requests]
            size = max(1, min(ROWS, LOGITS // (self.vocabulary * length)))
            yield from (numbers[i : i + size] for i in range(0, len(numbers), size))

    def _decode(self, numbers: list[int]) -> None:
        """Sample the replies of these requests, in step, until all of them have ended."""
        rows, decoders = self._rows(numbers), [_Decoder(runner, self.engine.paths) for runner in self.runners]
        at = slice(0, len(numbers))
        whole = torch.stack([self.requests[i].prompt for i in numbers]).to(self.device)
        alive = set(range(len(numbers)))
        while alive:
            logits = [decoder.next(whole) for decoder in decoders]
            rows.sample(self.mix(logits) if self.mix else logits[0], at, self.filtered)
            whole = torch.cat([whole, rows.last[:, None]], 1)
            for row in sorted(alive):
                told = self.requests[numbers[row]].told
                if told is not None:
                    told(rows.tokens[row, : int(rows.count[row])].cpu())
            done = rows.done.tolist()
            ended = [row for row in sorted(alive) if done[row] or self._stopped(rows, row, numbers[row])]
            self._finish(rows, ended, numbers, alive)

    def _rows(self, numbers: list[int]) -> RunningBatch:
        limits, requests = [self.limits[i] for i in numbers], [self.requests[i] for i in numbers]
        rows = RunningBatch(len(numbers), max(limits), self.engine.chat.stops, self.device)
        rows.put(
            slice(0, len(numbers)),
            {
                "limit": limits,
                "key": [r.key for r in requests],
                "slot": list(range(len(numbers))),
                "base": [self.of[i].length for i in numbers],
                **sampling_of(requests),
            },
        )
        if self.filtered:
            rows.read_prompts(slice(0, len(numbers)), requests, self.vocabulary)
        return rows

    def _stopped(self, rows: RunningBatch, row: int, number: int) -> bool:
        """Whether a stop string has appeared in a row's text."""
        stop = self.requests[number].stop
        if not stop:
            return False
        return end_of(rows.tokens[row, : int(rows.count[row])].cpu(), stop, self.engine.chat.text) is not None

    def _finish(self, rows: RunningBatch, ended: list[int], numbers: list[int], alive: set[int]) -> None:
        """Rows that have ended become samples; where a prompt then has enough, the others of it end where they are."""
        touched: dict[Prompt, None] = {}
        for row in ended:
            self._sample(rows, row, numbers[row], None)
            alive.discard(row)
            touched[self.of[numbers[row]]] = None
        for prompt in touched:
            if self.stop_rule is None or not self.stop_rule(prompt.finished):
                continue
            for row in [row for row in sorted(alive) if self.of[numbers[row]] is prompt]:
                self._sample(rows, row, numbers[row], "enough")
                alive.discard(row)
            for i in prompt.requests:
                self.samples.setdefault(i, Sample(torch.zeros(0, dtype=torch.long), torch.zeros(0), "enough"))

    def _sample(self, rows: RunningBatch, row: int, number: int, stopped: Stopped | None) -> None:
        count = int(rows.count[row])
        tokens, logp = rows.tokens[row, :count].cpu().clone(), rows.logp[row, :count].cpu().clone()
        end = end_of(tokens, self.requests[number].stop, self.engine.chat.text)
        why: Stopped = stopped or ("stop" if end is not None or bool(rows.ended[row]) else "length")
        whole = Sample(tokens, logp, why, rows.take_allowed(row, 0, count))
        sample = self.samples[number] = whole if end is None else whole.first(end)
        if self.on_sample is not None:
            self.on_sample(number, sample)
        if not stopped:
            self.of[number].finished.append(sample)
