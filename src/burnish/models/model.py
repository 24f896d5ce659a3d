"""A model of a run: its name and role, its module, tokenizer, optimiser and engine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from burnish.core.roles import Role
from burnish.core.types import Clock, Drawn, Trace, at_temperature, how_drawn, keys_of_rows
from burnish.engine.feed import Feed
from burnish.engine.local import LocalEngine
from burnish.engine.mixture import Mix
from burnish.engine.protocol import Engine, GenerateOptions
from burnish.engine.request import OnSample, Request, Sample, StopRule
from burnish.engine.subprocess.engine import EngineSpec, SubprocessEngine
from burnish.engine.subprocess.probe import Difference, probe_rows
from burnish.forward import outputs as forward
from burnish.forward.context import ContextGroup, ContextRunner
from burnish.forward.denoise import HowDrawn, denoising_of, set_denoising
from burnish.forward.drawn import Temperature
from burnish.forward.masked import Filling, masked_of, set_known
from burnish.forward.offload import offloaded
from burnish.forward.outputs import packable
from burnish.forward.packing import joined, on_gpu
from burnish.forward.paths import note, paths_of
from burnish.forward.prefix_tree import Numbers
from burnish.forward.runner import TransformersRunner
from burnish.models.chat import Chat
from burnish.models.layer_shards import LayerShards
from burnish.models.lora_dropout import UpdateDropout, dropping
from burnish.models.mixed_precision import ComputeCopy
from burnish.models.oom_backoff import TokenRoom, or_out_of_memory
from burnish.models.path_check import check
from burnish.models.precision import Precision
from burnish.models.ranks import Ranks, samples_of_all, streams_of_all
from burnish.models.save import save_directory
from burnish.models.sharded_states import ShardedStates
from burnish.util.work_units import SAMPLING, UNITS

if TYPE_CHECKING:
    from burnish.models.optimiser import Optimiser


FORWARD_ONLY = 8  # on a GPU, how many times the tokens of a micro-batch a pass without gradient takes at once
SMALL_OUTPUTS = frozenset({"logp", "entropy", "value", "score"})  # a few numbers a token


@dataclass
class Model:
    """A loaded model. `version` counts the publishes that changed its weights; every sampled turn carries it.

    fresh: whether the weights are still those of that version, not yet moved by an update.
    engine_spec: the engine in another process that samples for it; None: the local engine does, with its own weights.
    warnings: messages of its engine, drained by the run's monitor.
    activations: what becomes of them until the backward pass: off, recompute or offload (step.ACTIVATIONS).
    precision: the number formats in which it is saved when the run is over.
    token_room: how many tokens fit into memory at once, since they once did not; shared by the models of a run.
    ranks: the processes of the run, which divide the requests and rows that all of them have.
    shards: the layers that the ranks divide (--shard full).
    context_group: the ranks that divide the tokens of a pass (--context-ranks).
    filling: how a model that fills in hidden tokens does it. drawing: how a model that draws does it.
    """

    name: str
    role: Role
    module: nn.Module
    chat: Chat
    context: int
    trainer: Optimiser | None = None
    packed: bool = True
    version: int = 0
    fresh: bool = True
    kv_budget: int | None = None
    exact: bool = False
    engine_spec: EngineSpec | None = None
    warnings: list[str] = field(default_factory=list)
    activations: str = "off"
    precision: Precision = field(default_factory=Precision)
    token_room: TokenRoom = field(default_factory=TokenRoom)
    ranks: Ranks = field(default_factory=Ranks)
    shards: LayerShards | None = None
    context_group: ContextGroup | None = None
    filling: Filling = field(default_factory=Filling)
    drawing: HowDrawn = field(default_factory=HowDrawn)
    working: ComputeCopy = field(init=False)
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        by_itself = TransformersRunner(self.module) if self.shards is not None else None
        if self.context_group is not None:
            by_itself = ContextRunner(self.module, self.context_group)
        self.working = ComputeCopy(self.module, self.role.liveness == "frozen", self.exact, self.activations, by_itself)
        self._settle_view()
        picture = self.chat.pictures.shown_to(self.module, self.working.copy)
        warning = check(self.module, self.working.runner, self.context, self.engine_spec is None, picture)
        self.warnings += [warning] if warning else []
        if self.shards is not None and on_gpu(self.device):  # CUDA graphs need weights that stay where they are
            note(self.module, replace(paths_of(self.module), engine=False))
        self.packed = self.packed and packable(self.working.copy)
        if self.trainer is not None:
            self.trainer.on_step = self._refresh
            if isinstance(self.trainer.states, ShardedStates):
                self.working.divide(self.trainer.states)
            elif self.shards is not None:
                self.shards.states = self.trainer.states
        if self.engine_spec is not None:
            self.engine = SubprocessEngine(
                self.engine_spec, self.module, self.chat, self.context, self._log_probs, self._save, self.warnings
            )
        else:  # exact promises that the trainer finds the sampler's numbers by itself
            learns = self.trainer is not None and not self.exact
            self.engine = LocalEngine(self.working.runner, self.chat, self.context, self.kv_budget, self.exact, learns)

    @property
    def optimiser(self) -> Optimiser:
        assert self.trainer is not None, f"{self.name} is {self.role.liveness}, it has no optimiser"
        return self.trainer

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    def weights_moved(self) -> None:
        """The weights have changed. To be called after every change, whatever made it: compute copy, weight layouts and
        cached activations are refreshed before the model computes again."""
        if self.trainer is not None and self.trainer.states is not None:
            self.trainer.states.adopt()
        self._refresh()

    def _settle_view(self) -> None:
        """Of a model that fills in hidden tokens, or draws: how it samples, and of what its log-probs are."""
        known, draws = masked_of(self.module), denoising_of(self.module)
        if known is None and draws is None:
            return
        if self.engine_spec is not None or self.context_group is not None or self.shards is not None:
            raise ValueError(
                f"a model that {'draws' if known is None else 'fills in hidden tokens'} is sampled and trained by one "
                "process that has all of it; use --engine local, and leave out --shard full and --context-ranks"
            )
        for module in (self.module, self.working.copy):
            if known is not None:
                set_known(module, self.filling.of(known, self.role.view))
            if draws is not None:
                set_denoising(module, self.drawing.of(draws, self.role.sampler))

    def begin_step(self, step: int | None) -> None:
        """A step of the run begins, or what is outside of steps (None): in each, other tokens are hidden and other
        noise is drawn, where a view does that, and the same whenever the model is measured.
        """
        number = -1 if step is None else step
        for module in (self.module, self.working.copy):
            if (known := masked_of(module)) is not None:
                set_known(module, replace(known, step=number))
            if (draws := denoising_of(module)) is not None:
                set_denoising(module, replace(draws, at=number))

    def _refresh(self) -> None:
        """What was derived from the weights is stale."""
        if self.shards is not None:
            self.shards.release()
        self.working.weights_moved()

    def dropping(self, clock: Clock) -> AbstractContextManager[None]:
        """Inside, its LoRA adapters drop inputs, if they have a dropout; in each step other ones."""
        if not self._drops:
            return nullcontext()
        return dropping(self.working.weights(), clock.seed, clock.step, clock.tick, self.name)

    @cached_property
    def _drops(self) -> bool:
        """Whether its adapters have a dropout. To look through all modules in every pass takes a millisecond."""
        return any(isinstance(part, UpdateDropout) for part in self.working.copy.modules())

    def generate(
        self,
        requests: list[Request],
        others: Sequence[Model] = (),
        mix: Mix | None = None,
        stop_rule: StopRule | None = None,
        on_sample: OnSample | None = None,
        feed: Feed | None = None,
    ) -> list[Sample]:
        """A sample for each request, from this model or from a mixture with others (engine/protocol.py)."""
        self.working.current()
        runners = [model.working.current() for model in others]
        for model in (self, *others):
            if model.shards is not None and self.engine_spec is None:
                model.shards.gather()
        alone = stop_rule is None and on_sample is None and feed is None and all(r.after is None for r in requests)
        if alone:
            here = self.ranks.portion(requests) if self.ranks.divides else requests
            with UNITS.own_code(SAMPLING) if mix is None else nullcontext():
                own = self.engine.generate(here, GenerateOptions(runners, mix))
            if not self.ranks.divides:
                return own
            self.ranks.portion_done()
            return samples_of_all(self.ranks, own)
        return self.engine.generate(requests, GenerateOptions(runners, mix, stop_rule, on_sample, feed))

    def send(self, *, start: bool = False) -> Difference | None:
        """After a publish: send the weights to an engine that holds a copy of them. How far it then is from the
        trainer.

        start: whether an engine that does not run yet is started now. By default it is not sent anything.
        """
        return (self.engine.start() if start else None) or self.engine.publish()

    def end(self) -> None:
        """End the engine's process, where it has one; sampling again would start another."""
        self.engine.end()

    def proof(self) -> list[list[float]]:
        """Its log-probs of the probe: every engine that runs the same weights gives the same numbers."""
        return self._log_probs(probe_rows(self.chat, self.context))

    def _save(self, folder: Path) -> None:
        """Write the present weights as a model directory, adapters merged into them."""
        save_directory(self.module, self.chat, folder, merge=True)

    @torch.no_grad()
    def _log_probs(self, rows: list[Tensor]) -> list[list[float]]:
        """The trainer's log-probs of all tokens but the first of each row."""
        logps = self.outputs(rows, [torch.arange(len(row)) > 0 for row in rows], {"logp"})["logp"]
        return [part.tolist() for part in logps.float().cpu().split([len(row) - 1 for row in rows])]

    def outputs(
        self,
        tokens: Sequence[Tensor | Numbers],
        masks: list[Tensor],
        want: set[str],
        drawn: Drawn | Temperature = 1.0,
        embedded: list[Tensor] | None = None,
        replayed: bool = False,
        input_keys: Sequence[Numbers] | None = None,
    ) -> dict[str, Tensor]:
        """Live outputs at the masked tokens, with gradient where grad is on: see forward/outputs.py."""
        runner = self.working.current()
        if isinstance(runner, ContextRunner) and self.ranks.divides:
            with runner.dividing():
                return forward.outputs(
                    runner, tokens, masks, want, drawn, self.packed, embedded, replayed, input_keys, runner
                )
        to_host = self.activations == "offload" and torch.is_grad_enabled()
        with offloaded(runner.module) if to_host else nullcontext():
            return forward.outputs(runner, tokens, masks, want, drawn, self.packed, embedded, replayed, input_keys)

    @torch.no_grad()
    def streams(
        self,
        traces: list[Trace],
        masks: list[Tensor],
        want: set[str],
        budget: int,
        temperature: float | None = None,
        given_at: float = 1.0,
    ) -> list[dict[str, Tensor]]:
        """The same without gradient, for many traces, as streams over whole traces (NaN at the other tokens).

        temperature  of the log-probs; None: they are of the distribution that each token was drawn from
        given_at     then the temperature of tokens that were given, not sampled
        """
        if self.ranks.divides:
            with self.ranks.apart():
                both = zip(traces, masks, strict=True)
                own_rows = self.ranks.portion(list(both))
                own = self.streams(
                    [t for t, _ in own_rows], [mask for _, mask in own_rows], want, budget, temperature, given_at
                )
            return streams_of_all(self.ranks, own)
        streams: list[dict[str, Tensor]] = [{} for _ in traces]
        if want <= SMALL_OUTPUTS and on_gpu(self.device):  # nothing is kept of a layer: launches cost more than memory
            budget *= FORWARD_ONLY
        order = [i for i in range(len(traces)) if bool(masks[i].any())]
        lengths = [len(trace) for trace in traces]
        if not self.packed:
            order.sort(key=lambda i: -lengths[i])

        def batches() -> list[list[int]]:
            missing = [i for i in order if not streams[i]]
            return _by_budget(missing, lengths, self.token_room.within(budget), self.packed)

        def attempt() -> None:
            for batch in batches():
                self._fill(streams, batch, traces, masks, want, temperature, given_at)

        def largest() -> tuple[int, int]:
            return max((sum(lengths[i] for i in batch), len(batch)) for batch in batches()[:1])

        if self.shards is not None:  # the other ranks wait in the middle of a pass that cannot be cut
            or_out_of_memory(attempt, self.ranks.rank, budget)
        else:
            self.token_room.fitting(attempt, largest, lambda: None)
        return streams

    def _fill(
        self,
        streams: list[dict[str, Tensor]],
        batch: list[int],
        traces: list[Trace],
        masks: list[Tensor],
        want: set[str],
        temperature: float | None,
        given_at: float,
    ) -> None:
        """The streams of the traces whose numbers are in `batch`, from one forward pass."""
        some, masks_of_batch = [traces[i] for i in batch], [masks[i] for i in batch]
        at = how_drawn(some, masks_of_batch, given_at) if temperature is None else at_temperature(some, temperature)
        keys = keys_of_rows([trace.turns for trace in some])
        flat, ends = joined([turn.tokens for trace in some for turn in trace.turns]), np.cumsum([len(t) for t in some])
        out = self.outputs(np.split(flat, ends[:-1]), masks_of_batch, want, at, input_keys=keys)
        sizes = [int(np.count_nonzero(mask.numpy())) for mask in masks_of_batch]
        for name, values in out.items():
            for i, values_of_trace in zip(batch, values.cpu().float().split(sizes), strict=True):
                stream = torch.full((len(traces[i]), *values_of_trace.shape[1:]), float("nan"))
                stream[masks[i]] = values_of_trace
                streams[i][name] = stream


def _by_budget(order: list[int], lengths: list[int], budget: int, packed: bool) -> list[list[int]]:
    """Consecutive runs of `order` that fit the budget of tokens, laid end to end or padded to the first
    (the longest).
    """
    batches: list[list[int]] = []
    full = 0  # tokens of the last one
    for i in order:
        more = lengths[i if packed or not batches else batches[-1][0]]
        if batches and full + more <= budget:
            batches[-1].append(i)
            full += more
        else:
            batches.append([i])
            full = lengths[i]
    return batches
