"""A member of the cast: a model with a name, what it can do, and how its weights live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from burnish.cast import forward
from burnish.cast.apart.engine import Apart, ApartEngine
from burnish.cast.apart.probe import Difference, probe_rows
from burnish.cast.blend import Mix
from burnish.cast.chat import Chat
from burnish.cast.local import Enough, Heard, LocalEngine, Request, Sample
from burnish.cast.roles import Role
from burnish.cast.tree import Numbers
from burnish.cast.working import Working
from burnish.nouns import Trace

if TYPE_CHECKING:
    from burnish.cast.optimiser import Optimiser


@dataclass
class Member:
    """A loaded model. `version` counts the publishes that changed its weights; every sampled turn carries it.

    fresh: whether the weights are still those of that version, not yet moved by an update.
    apart: the engine in another process that samples for it; None where its own weights do.
    said: what its engine has to say to people, until somebody takes it away.
    """

    name: str
    role: Role
    model: nn.Module
    chat: Chat
    context: int
    trainer: Optimiser | None = None
    packed: bool = True
    version: int = 0
    fresh: bool = True
    kv_budget: int | None = None
    exact: bool = False
    apart: Apart | None = None
    said: list[str] = field(default_factory=list)
    working: Working = field(init=False)
    engine: LocalEngine | ApartEngine = field(init=False)

    def __post_init__(self) -> None:
        self.working = Working(self.model, self.role.liveness == "frozen", self.exact)
        if self.apart is not None:
            self.engine = ApartEngine(self.apart, self.model, self.chat, self.context, self._log_probs, self.said)
        else:
            learns = (
                self.trainer is not None and not self.exact
            )  # which promises that the trainer finds the same by itself
            self.engine = LocalEngine(self.working.copy, self.chat, self.context, self.kv_budget, self.exact, learns)

    @property
    def optimiser(self) -> Optimiser:
        assert self.trainer is not None, f"{self.name} is {self.role.liveness}, it has no optimiser"
        return self.trainer

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def generate(
        self,
        requests: list[Request],
        others: Sequence[Member] = (),
        mix: Mix | None = None,
        enough: Enough | None = None,
        heard: Heard | None = None,
    ) -> list[Sample]:
        """A sample for each request, from this model or from a mixture with others. heard: told of each as it is finished."""
        self.working.weights()
        return self.engine.generate(requests, [member.working.weights() for member in others], mix, enough, heard)

    def send(self, *, start: bool = False) -> Difference | None:
        """After a publish: the weights go to the engine that holds a copy of them. How far it then is from the trainer.

        start: whether an engine that does not run yet is started now. By default it is not sent anything.
        """
        if self.apart is None:
            return None
        assert isinstance(self.engine, ApartEngine)
        return (self.engine.start() if start else None) or self.engine.publish()

    def end(self) -> None:
        """End the engine's process, where it has one; sampling again would start another."""
        if self.apart is not None:
            self.engine.end()  # type: ignore[union-attr]

    def proof(self) -> list[list[float]]:
        """Its log-probs of the probe: whoever runs the same weights gives the same numbers."""
        return self._log_probs(probe_rows(self.chat, self.context))

    @torch.no_grad()
    def _log_probs(self, rows: list[Tensor]) -> list[list[float]]:
        """The trainer's log-probs of all tokens but the first of each row."""
        found = self.outputs(rows, [torch.arange(len(row)) > 0 for row in rows], {"logp"})["logp"]
        return [part.tolist() for part in found.float().cpu().split([len(row) - 1 for row in rows])]

    def outputs(
        self,
        tokens: Sequence[Tensor | Numbers],
        masks: list[Tensor],
        want: set[str],
        temperature: float = 1.0,
        embedded: list[Tensor] | None = None,
        recorded: bool = False,
    ) -> dict[str, Tensor]:
        """Live outputs at the masked tokens, with gradient where grad is on: see cast/forward.py."""
        model = self.working.weights()
        return forward.outputs(model, tokens, masks, want, temperature, self.packed, embedded, recorded)

    @torch.no_grad()
    def streams(
        self, traces: list[Trace], masks: list[Tensor], want: set[str], budget: int, temperature: float = 1.0
    ) -> list[dict[str, Tensor]]:
        """The same without gradient, for many traces, as streams over whole traces (nan where nobody asked)."""
        found: list[dict[str, Tensor]] = [{} for _ in traces]
        order = [i for i in range(len(traces)) if bool(masks[i].any())]
        if not self.packed:
            order.sort(key=lambda i: -len(traces[i]))
        for batch in _by_budget(order, [len(trace) for trace in traces], budget, self.packed):
            out = self.outputs([traces[i].tokens for i in batch], [masks[i] for i in batch], want, temperature)
            for name, values in out.items():
                for i, mine in zip(
                    batch, values.cpu().float().split([int(masks[i].sum()) for i in batch]), strict=True
                ):
                    stream = torch.full((len(traces[i]), *mine.shape[1:]), float("nan"))
                    stream[masks[i]] = mine
                    found[i][name] = stream
        return found


def _by_budget(order: list[int], lengths: list[int], budget: int, packed: bool) -> list[list[int]]:
    """Consecutive runs of `order` that fit the budget of tokens, laid end to end or padded to the first (the longest)."""
    batches: list[list[int]] = []
    for i in order:
        if batches:
            full = sum(lengths[j] for j in batches[-1]) if packed else len(batches[-1]) * lengths[batches[-1][0]]
            if full + lengths[i if packed else batches[-1][0]] <= budget:
                batches[-1].append(i)
                continue
        batches.append([i])
    return batches
