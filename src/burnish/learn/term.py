"""A term: one number per unit, from live outputs and streams. It never divides and never averages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.core.types import Clock
from burnish.learn.norms import Norm

Unit = Literal["token", "sequence", "pair", "list", "group"]
UNITS: tuple[Unit, ...] = get_args(Unit)
Authors = str | tuple[str, ...]
CLAIMED: tuple[str, ...] = ()  # Term(on=CLAIMED): a claim() in credit says which tokens; without one it is refused


@dataclass
class Live:
    """What a term sees of a micro-batch of R traces, at the N tokens that it claims.

    outputs   "logp", "entropy", "value" [N] (or [N, k]), "logits" [N, V] of the trainee; "teacher.logits" of another
              model
    streams   name -> [N], as `credit` wrote them
    row       [N] the trace (0..R-1) of each token
    pairs     [P, 2] rows (better, worse); lists: tuples of rows, best first
    group     [R] the group (0..G-1) of each trace, for terms whose unit is a group
    clock     for coefficients that are schedules
    noted     name -> one number per unit, and the units that count; the learner averages them with the term's own
              weights
    """

    outputs: dict[str, Tensor]
    streams: dict[str, Tensor]
    row: Tensor
    rows: int
    pairs: Tensor
    lists: list[tuple[int, ...]]
    group: Tensor
    clock: Clock
    noted: dict[str, tuple[Tensor, Tensor | None]] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Tensor:
        """live.logp is the trainee's output, live.adv is a stream."""
        tensors: Mapping[str, Tensor]
        for tensors in (self.__dict__["outputs"], self.__dict__["streams"]):
            if name in tensors:
                return tensors[name]
        raise AttributeError(f"a term reads {name!r}, but declared neither an output nor a stream of that name")

    def per_row(self, x: Tensor) -> Tensor:
        """[N] -> [R]: the sum over each trace's tokens."""
        return torch.zeros(self.rows, dtype=x.dtype, device=x.device).index_add(0, self.row, x)

    def note(self, name: str, x: Tensor, where: Tensor | None = None) -> None:
        """Record one number per unit as the metric TERM/NAME: its mean over the units, or over those `where` (bool)."""
        self.noted[name] = (x.detach(), where)

    def note_order(self, better: Tensor, worse: Tensor) -> None:
        """Note the share of pairs in the right order, of which a tie is one half, and the share of ties.

        All pairs tie where the trainee is still its reference: that is chance (50%), not 0% right.
        """
        ties = (better == worse).float()
        self.note("accuracy", (better > worse).float() + 0.5 * ties)
        self.note("ties", ties)


Loss = Callable[[Live], Tensor]  # one number per unit


@dataclass(frozen=True, kw_only=True)
class Term:
    """One summand of what is minimised.

    name      its name in metrics, in --swap and in credit's claim(name, ...)
    on        the author (or authors) whose tokens it trains on; a claim() of that name in credit overrides it
    unit      what one number is about: token, sequence, pair, list or group
    loss      Live -> [N], [R], [P], [lists] or [G]: one number per unit
    live      outputs it needs: "logp" (of the trainee), or "teacher.logits" (of another model, without gradient)
    streams   per-token numbers it needs
    """

    name: str
    unit: Unit
    loss: Loss
    live: tuple[str, ...]
    norm: Norm
    streams: tuple[str, ...] = ()
    trainee: str = "policy"
    coef: Schedule = 1.0
    on: Authors = "policy"

    def __post_init__(self) -> None:
        assert self.unit in UNITS, self.unit

    @property
    def reads(self) -> frozenset[str]:
        live = {f"model:{name}" if "." in name else f"model:{self.trainee}.{name}" for name in self.live}
        wired = {"pair": {"pairs"}, "list": {"lists"}}.get(self.unit, set())
        return frozenset({*(f"stream:{s}" for s in self.streams), *live, *wired})

    @property
    def authors(self) -> tuple[str, ...]:
        return (self.on,) if isinstance(self.on, str) else self.on

    @property
    def own(self) -> set[str]:
        """The trainee's outputs that it needs."""
        return {name for name in self.live if "." not in name}
