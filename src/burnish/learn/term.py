"""A term: one number per unit, from live outputs and streams. It never divides and never averages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from burnish.learn.norms import Norm
from burnish.nouns import Clock
from burnish.schedules import Schedule

UNITS = ("token", "sequence", "pair", "list", "group")


@dataclass
class Live:
    """What a term sees of a micro-batch of R traces, at the N tokens that it claims.

    outputs   "logp", "entropy", "value" [N] (or [N, k]), "logits" [N, V] of the trainee; "teacher.logits" of another member
    streams   name -> [N], as `credit` wrote them
    row       [N] the trace (0..R-1) of each token
    pairs     [P, 2] rows (better, worse); lists: tuples of rows, best first
    group     [R] the group (0..G-1) of each trace, for terms whose unit is a group
    clock     for coefficients that are schedules
    noted     name -> one number per unit; the learner averages them with the weights of the term itself
    """

    outputs: dict[str, Tensor]
    streams: dict[str, Tensor]
    row: Tensor
    rows: int
    pairs: Tensor
    lists: list[tuple[int, ...]]
    group: Tensor
    clock: Clock
    noted: dict[str, Tensor] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Tensor:
        """live.logp is the trainee's output, live.adv is a stream."""
        for found in (self.__dict__["outputs"], self.__dict__["streams"]):
            if name in found:
                return found[name]
        raise AttributeError(f"a term reads {name!r}, but declared neither an output nor a stream of that name")

    def per_row(self, x: Tensor) -> Tensor:
        """[N] -> [R]: the sum over each trace's tokens."""
        return torch.zeros(self.rows, dtype=x.dtype, device=x.device).index_add(0, self.row, x)

    def note(self, name: str, x: Tensor) -> None:
        self.noted[name] = x.detach()


@dataclass(frozen=True, kw_only=True)
class Term:
    """One summand of what is minimised.

    name      also the name of its membership: credit's `member(name, author)` says which tokens it claims
    unit      what one number is about: token, sequence, pair, list or group
    loss      Live -> [N], [R], [P], [lists] or [G]: one number per unit
    live      outputs it needs: "logp" (of the trainee), or "teacher.logits" (of another member, without gradient)
    streams   per-token numbers it needs
    """

    name: str
    unit: str
    loss: Callable[[Live], Tensor]
    live: tuple[str, ...]
    norm: Norm
    streams: tuple[str, ...] = ()
    trainee: str = "policy"
    coef: Schedule = 1.0

    def __post_init__(self) -> None:
        assert self.unit in UNITS, self.unit

    @property
    def reads(self) -> frozenset[str]:
        live = {f"cast:{name}" if "." in name else f"cast:{self.trainee}.{name}" for name in self.live}
        wired = {"pair": {"pairs"}, "list": {"lists"}}.get(self.unit, set())
        return frozenset({f"member:{self.name}", *(f"stream:{s}" for s in self.streams), *live, *wired})

    @property
    def own(self) -> set[str]:
        """The trainee's outputs that it needs."""
        return {name for name in self.live if "." not in name}
