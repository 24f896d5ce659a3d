"""What a part may look at while it works: the clock, the cast, the settings of the run, and a place for notes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from burnish.nouns import Clock, Group, Task, Trace
from burnish.refusal import Refusal

if TYPE_CHECKING:
    from burnish.cast.stage import Cast
    from burnish.parts import Part


@dataclass(frozen=True)
class Settings:
    """The numbers of a run that are not the method's: batch, lengths, budgets, optimiser."""

    prompts: int = 16  # tasks per step
    max_new_tokens: int = 64  # longest sampled reply, in tokens
    chunk: int | None = None  # tokens of a reply that one step writes; None: all of them
    token_budget: int = 8192  # tokens in one micro-batch
    packed: bool = True  # rows laid end to end, shared beginnings once; off: padded
    kv_gib: float | None = None  # memory for keys and values while sampling
    exact: bool = False  # sampler and trainer agree bit for bit, whoever is sampled beside whom
    lr: float = 1e-6
    lr_schedule: str = "constant"  # constant, linear or cosine, after the warm-up
    lr_warmup: int = 0  # steps of linear warm-up
    weight_decay: float = 0.0
    clip: float = 1.0  # largest norm of the gradient; 0 turns clipping off
    checkpoint_activations: bool = False
    engine: str = "local"  # who samples for the trained models: local, process or vllm
    vllm_python: str | None = None  # the Python that has vLLM
    on_mismatch: str = "stop"  # stop or warn, where the engine does not run the trained weights
    lag: int = 0  # steps by which sampling runs ahead of learning; 0: one after the other


class Notes:
    """Sums and weights of named numbers; a note's value is its weighted mean, whatever order or split they came in."""

    def __init__(self) -> None:
        self._sums: dict[str, Any] = defaultdict(float)
        self._weights: dict[str, Any] = defaultdict(float)
        self._totals: dict[str, int] = defaultdict(int)

    def add(self, name: str, total: float | Tensor, weight: float | Tensor = 1.0) -> None:
        """Numbers that are still being computed on a GPU are added there, and waited for when somebody reads them."""
        self._sums[name] = self._sums[name] + _number(total)
        self._weights[name] = self._weights[name] + _number(weight)

    def count(self, name: str, total: int) -> None:
        """A number that is summed, not averaged."""
        self._totals[name] += total

    def means(self) -> dict[str, float]:
        weights = {name: float(weight) for name, weight in self._weights.items()}
        return {name: float(self._sums[name]) / weights[name] for name in self._sums if weights[name]}

    def values(self) -> dict[str, float]:
        """Sums and means together."""
        return {**self._totals, **self.means()}

    def state_dict(self) -> dict[str, dict[str, float]]:
        """Sums, weights and totals as plain numbers, for a step that is only half walked."""
        sums = {name: float(total) for name, total in self._sums.items()}
        weights = {name: float(weight) for name, weight in self._weights.items()}
        return {"sums": sums, "weights": weights, "totals": dict(self._totals)}

    def load_state_dict(self, state: dict[str, dict[str, Any]]) -> None:
        self._sums.update(state["sums"])
        self._weights.update(state["weights"])
        self._totals.update(state["totals"])


def _number(x: float | Tensor) -> float | Tensor:
    return x.double() if isinstance(x, Tensor) and x.is_cuda else float(x)


class Looks:
    """How unsure the policy was of each token that it learns from, as its first forward pass over it found.

    Only kept where a term computes entropies anyway, and only put together where somebody asks: a copy of a few numbers each.
    """

    def __init__(self) -> None:
        self._passes: list[tuple[list[Trace], list[Tensor], Tensor]] = []
        self._seen: set[int] = set()

    def note(self, traces: list[Trace], claimed: list[Tensor], outputs: dict[str, Tensor]) -> None:
        """A pass: the entropies [N] of all the claimed tokens, trace after trace."""
        new = {id(trace.turns) for trace in traces} - self._seen
        if new and "entropy" in outputs:
            self._seen |= new
            self._passes.append(
                (traces, claimed, outputs["entropy"].detach().clone())
            )  # a later pass may reuse its memory

    def entropies(self) -> dict[int, Tensor]:
        """By id(trace.turns), which copies of a trace share: [T] on the CPU, nan where a token was not claimed."""
        found: dict[int, Tensor] = {}
        for traces, claimed, flat in self._passes:
            mask = torch.cat(claimed).cpu()
            whole = torch.full((len(mask),), torch.nan)
            whole[mask] = flat.to("cpu", torch.float32)
            for trace, values in zip(traces, whole.split([len(own) for own in claimed]), strict=True):
                found.setdefault(id(trace.turns), values)
        return found


@dataclass(frozen=True)
class Dropped:
    """A trace that a part took out of what is learnt from, and the part's name."""

    task: Task
    trace: Trace
    part: str


@dataclass
class Step:
    """One walk through the rooms."""

    clock: Clock
    cast: Cast
    settings: Settings
    notes: Notes = field(default_factory=Notes)
    phase: str = "main"
    refusals: list[Refusal] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    eager: tuple[Callable[[Group, Step], None], ...] = ()  # what may be begun on a group when its last reply has ended
    begun: dict[int, Any] = field(default_factory=dict)  # for those who begin: what they have set going
    looks: Looks = field(default_factory=Looks)

    def refuse(self, why: str, groups: list[Group]) -> None:
        """Note that nothing is learned of these groups, and why."""
        self.refusals.append(Refusal(self.phase, why, groups))
        self.notes.count("refused", 1)

    def through(self, part: Part, groups: list[Group]) -> list[Group]:
        """What a part makes of the groups. The traces that it takes out are noted, each once, with the part's name.

        A trace that a part copied is the same one: copies share their turns.
        """
        before = [(group.task, trace) for group in groups for trace in group.traces]
        groups = part.call(groups, self)
        known = {id(trace.turns) for group in groups for trace in group.traces}
        known |= {id(dropped.trace.turns) for dropped in self.dropped}
        self.dropped += [Dropped(task, trace, part.name) for task, trace in before if id(trace.turns) not in known]
        return groups

    def drop(self, groups: list[Group], why: str) -> None:
        """Note that all traces of these groups are taken out."""
        self.dropped += [Dropped(group.task, trace, why) for group in groups for trace in group.traces]
