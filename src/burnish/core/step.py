"""The context of a part: the clock, the models, the settings of the run, and the metrics (notes) of the step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from burnish.core.rejected import RejectedUpdate
from burnish.core.types import Clock, Group, Sampling, Task, Trace, TraceId

if TYPE_CHECKING:
    from burnish.core.parts import Part
    from burnish.models.build import Models


UNFINISHED = "unfinished"  # metric: replies that are still unfinished at the end of a step


LogpTemperature = float | Literal["run"] | None  # an argument of `Learn` and `credit.streams`


class LogpAt(NamedTuple):
    """What log-probs are taken at: one temperature for all; or None, as tokens were drawn, given ones at `given`."""

    temperature: float | None
    given: float = 1.0


ACTIVATIONS = ("off", "recompute", "offload")  # what becomes of activations until the backward pass


@dataclass(frozen=True)
class Settings:
    """Settings of a run that do not belong to the method: batch, lengths, budgets, optimiser."""

    prompts: int = 16  # tasks per step
    max_new_tokens: int = 64  # longest sampled reply, in tokens
    max_length: int | None = None  # longest prompt with its reply, in tokens; None: the model's context
    on_long: str = "drop"  # what happens to longer rows: drop, truncate or stop
    train_on: str = "all"  # what is trained on in a conversation: all replies, the last, or everything
    chunk: int | None = None  # tokens of a reply sampled in one step; None: all of them
    train_when: float | None = None  # share of the groups of episodes that must be done for a step to end; None: all
    step_deadline: float | None = None  # seconds that a step waits for environments; None: as long as they may take
    token_budget: int = 8192  # tokens in one micro-batch
    packed: bool = True  # rows packed end to end, shared prefixes once; off: padded
    kv_gib: float | None = None  # size of the KV cache while sampling
    exact: bool = False  # sampler and trainer agree bit for bit, independent of the other rows in the batch
    lr: float = 1e-6
    lr_schedule: str = "constant"  # constant, linear or cosine, after the warm-up
    lr_warmup: float = 0  # steps of linear warm-up; below 1: a share of all steps
    lr_min: float = 0.0  # where linear and cosine end, as a share of lr
    weight_decay: float = 0.0
    optimiser: str = "adamw"  # adamw; adamw16bit, adamw8bit: its moments in bf16 or in 8 bits
    shard: str = "off"  # what ranks divide besides the rows: off, optimiser, states or full
    shard_ranks: int = 0  # with shard full: ranks that divide the layers, in groups that each hold all; 0: all ranks
    context_ranks: int = 1  # ranks that divide the tokens of a pass
    master_weights: str = "float32"  # float32; split or bfloat16: trained weights in bf16 (models/compact_adamw.py)
    only: str | None = None  # the parts of a model that sees which learn: connector, language, tower; None: all
    clip: float = 1.0  # largest gradient norm; 0 turns clipping off
    checkpoint_activations: str = "off"  # off: kept on the device; recompute: made again; offload: kept on the host
    engine: str = "local"  # the engine that samples for trained models: local, process or vllm
    vllm_python: str | None = None  # the Python that has vLLM
    on_mismatch: str = "stop"  # stop or warn, if the engine does not run the trained weights
    diagnose_every: int = 0  # steps between the costly diagnostics of preference terms; 0: none
    turns: int = 16  # most replies of an episode with an environment or tools
    env_timeout: float = 60.0  # seconds that one call of an environment may take
    cut_turn: str = "close"  # what follows a reply of an episode that was cut: close, end
    lag: int = 0  # steps by which sampling runs ahead of learning; 0: one after the other
    view: str = ""  # of models that fill in hidden tokens: trajectory, all or random; "": what the method says
    unmask_per_step: int = 1  # tokens that a step of their sampler writes
    unmask_places: str = "surest"  # the places that it writes first: surest, chance
    unmask_block: int | None = None  # tokens of a block that they fill in; None: what the model says
    denoise_steps: int | None = None  # of models that draw: steps from noise to a picture; None: what the model says
    sampler: str = ""  # the rule of a step; "": what the method says
    denoise_noise: float | None = None  # how much noise it draws; None: what its paper says
    guidance: float | None = None  # how far the estimate is moved from the one without a caption; None: the model's
    reduce: str = "mean"  # the log-density of a step: the mean of its pixels' or their sum
    sampling: Sampling | None = None  # how replies are sampled where a part does not say otherwise; None: plainly


class Notes:
    """Metrics of a step: weighted means of named numbers, independent of the order in which they are added."""

    def __init__(self) -> None:
        self._sums: dict[str, Any] = defaultdict(float)
        self._weights: dict[str, Any] = defaultdict(float)
        self._totals: dict[str, int] = defaultdict(int)

    def add(self, name: str, total: float | Tensor, weight: float | Tensor = 1.0) -> None:
        """Add to a mean. CUDA tensors are added on the GPU without synchronising; reading the metrics synchronises."""
        self._sums[name] = self._sums[name] + _number(total)
        self._weights[name] = self._weights[name] + _number(weight)

    def count(self, name: str, total: int) -> None:
        """Add to a total, which is summed, not averaged."""
        self._totals[name] += total

    def means(self) -> dict[str, float]:
        return {name: total / weight for name, (total, weight) in self.sums().items()}

    def sums(self) -> dict[str, tuple[float, float]]:
        """The sum and the weight of each mean."""
        weights = {name: float(weight) for name, weight in self._weights.items()}
        return {name: (float(self._sums[name]), weights[name]) for name in self._sums if weights[name]}

    def values(self) -> dict[str, float]:
        """Totals and means together."""
        return {**self._totals, **self.means()}

    def kept(self) -> Callable[[], None]:
        """A function that takes back all that is added from now on."""
        sums, weights, totals = dict(self._sums), dict(self._weights), dict(self._totals)

        def back() -> None:
            self._sums, self._weights = defaultdict(float, sums), defaultdict(float, weights)
            self._totals = defaultdict(int, totals)

        return back

    def state_dict(self) -> dict[str, dict[str, float]]:
        """Sums, weights and totals as plain numbers, for the checkpoint of a partial step."""
        sums = {name: float(total) for name, total in self._sums.items()}
        weights = {name: float(weight) for name, weight in self._weights.items()}
        return {"sums": sums, "weights": weights, "totals": dict(self._totals)}

    def absorb(self, state: dict[str, dict[str, Any]]) -> None:
        """Add what other notes hold (their `state_dict`)."""
        for name, total in state["sums"].items():
            self.add(name, total, state["weights"][name])
        for name, total in state["totals"].items():
            self.count(name, int(total))

    def load_state_dict(self, state: dict[str, dict[str, Any]]) -> None:
        self._sums.update(state["sums"])
        self._weights.update(state["weights"])
        self._totals.update(state["totals"])


def _number(x: float | Tensor) -> float | Tensor:
    return x.double() if isinstance(x, Tensor) and x.is_cuda else float(x)


class TokenEntropies:
    """Per-token policy entropy, from the first training forward pass.

    Kept only if a term computes entropies anyway; assembled per trace only when `entropies` is called.
    """

    def __init__(self) -> None:
        self._passes: list[tuple[list[Trace], list[Tensor], Tensor]] = []
        self._seen: set[TraceId] = set()

    def note(self, traces: list[Trace], claimed: list[Tensor], outputs: dict[str, Tensor]) -> None:
        """Record a forward pass: the entropies [N] of all trained tokens, trace after trace."""
        new = {trace.id for trace in traces} - self._seen
        if new and "entropy" in outputs:
            self._seen |= new
            self._passes.append(
                (traces, claimed, outputs["entropy"].detach().clone())
            )  # a later pass may reuse its memory

    def entropies(self) -> dict[TraceId, Tensor]:
        """Entropies [T] on the CPU by Trace.id, which copies of a trace share; NaN for tokens not trained on."""
        by_trace: dict[TraceId, Tensor] = {}
        for traces, claimed, flat in self._passes:
            mask = torch.cat(claimed).cpu()
            whole = torch.full((len(mask),), torch.nan)
            whole[mask] = flat.to("cpu", torch.float32)
            for trace, values in zip(traces, whole.split([len(own) for own in claimed]), strict=True):
                by_trace.setdefault(trace.id, values)
        return by_trace


@dataclass(frozen=True)
class Dropped:
    """A trace that a part removed from the batch, and the part's name."""

    task: Task
    trace: Trace
    part: str


@dataclass
class Step:
    """One pass through the stages."""

    clock: Clock
    models: Models
    settings: Settings
    notes: Notes = field(default_factory=Notes)
    phase: str = "main"
    refusals: list[RejectedUpdate] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    eager: tuple[Callable[[Group, Step], None], ...] = ()  # called with a group when its last reply has ended
    begun: dict[TraceId, Any] = field(default_factory=dict)  # scoring that the `eager` functions have started
    looks: TokenEntropies = field(default_factory=TokenEntropies)
    product: str = "policy"  # the model that the method trains and saves; metrics without a model's name are its own
    measures: bool = False  # held-out groups, which are measured: labels stay as the data have them

    def sampling(self, temperature: float | None = None) -> Sampling:
        """How replies are sampled in this run; at another temperature nothing else of the run's way holds."""
        if temperature is not None:
            return Sampling(temperature)
        return self.settings.sampling or Sampling()

    def logp_at(self, asked: LogpTemperature) -> LogpAt:
        """What log-probs are taken at where a part asks for this."""
        if asked == "run":
            return LogpAt(None, self.sampling().logp_temperature)
        return LogpAt(asked)

    def refuse(self, why: str, groups: list[Group]) -> None:
        """Record that the update on these groups is rejected, and why."""
        self.refusals.append(RejectedUpdate(self.phase, why, groups))
        self.notes.count("refused", 1)

    def through(self, part: Part, groups: list[Group]) -> list[Group]:
        """The groups after a part. Each trace that it removes is recorded in `dropped`, with the part's name.

        A copy of a trace counts as the same trace: copies share their id.
        """
        before = [(group.task, trace) for group in groups for trace in group.traces]
        groups = part.call(groups, self)
        known = {trace.id for group in groups for trace in group.traces}
        known |= {dropped.trace.id for dropped in self.dropped}
        self.dropped += [Dropped(task, trace, part.name) for task, trace in before if trace.id not in known]
        return groups

    def drop(self, groups: list[Group], why: str) -> None:
        """Record that all traces of these groups are removed."""
        self.dropped += [Dropped(group.task, trace, why) for group in groups for trace in group.traces]
