"""A cast that runs on weights as they were published at one moment, while the members themselves learn on.

`take` copies the weights, in the thread that moves them; `cast_of` loads a copy into models of its own, in the thread that
samples. Members that the given parts read have a model of their own here, for an engine keeps notes on the modules that it
runs; weights that never change are shared all the same. Of other members there is the tokenizer, and nothing that computes.

Where an engine in another process samples, it belongs to this cast: it is sent a copy when the copy is loaded here, and proves
against it that it runs it. The members that learn then sample for themselves (evaluations, refills) with their own weights.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from burnish.cast.apart.engine import Apart
from burnish.cast.apart.probe import NAME as PROBE
from burnish.cast.apart.probe import Difference
from burnish.cast.chat import Chat
from burnish.cast.member import Member
from burnish.cast.roles import Role
from burnish.cast.stage import Cast
from burnish.step import Notes


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights and the version of each copied member, at one moment."""

    versions: dict[str, int]
    tensors: dict[str, list[Tensor]] = field(repr=False)


class Reader:
    """A member of which there is no copy: its tokenizer, and nothing that computes."""

    def __init__(self, name: str, role: Role, chat: Chat, context: int) -> None:
        self.name, self.role, self.chat, self.context = name, role, chat, context

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"a part in rollout or score asks for {name!r} of {self.name!r}, which it does not declare; add "
            f"'cast:{self.name}.CAPABILITY' to what the part reads, so that the member's weights are kept for it"
        )


class Behind:
    """A second cast beside the first: the same members on earlier weights. reads: names like "cast:policy.generate"."""

    def __init__(self, cast: Cast, reads: Iterable[str]) -> None:
        wanted = members_read(reads)
        self.live = cast
        self.copied = [member.name for member in cast if member.name in wanted and member.role.liveness != "frozen"]
        members: dict[str, Any] = {}
        for member in cast:
            reader = Reader(member.name, member.role, member.chat, member.context)
            members[member.name] = _twin(member, cast.ahead) if member.name in wanted else reader
        self._cast = Cast(members)
        self._proved: dict[str, Difference] = {}  # of each engine apart, since it was sent its weights
        self._loaded: Weights | None = None
        self._taken: Weights | None = None

    @torch.no_grad()
    def take(self) -> Weights:
        """The weights as they are now; the same object as long as no version changed."""
        versions = {name: self.live[name].version for name in self.copied}
        if self._taken is None or self._taken.versions != versions:
            tensors = {name: [p.detach().clone() for p in moving(self.live[name].model)] for name in self.copied}
            self._taken = Weights(versions, tensors)
        return self._taken

    @torch.no_grad()
    def cast_of(self, weights: Weights, notes: Notes) -> Cast:
        """The cast on these weights, until the next call. `notes` gets how far an engine apart is from them."""
        if weights is not self._loaded:
            for name in self.copied:
                twin = self._cast[name]
                for p, kept in zip(moving(twin.model), weights.tensors[name], strict=True):
                    p.copy_(kept)
                twin.version = weights.versions[name]
                found = twin.send(start=True)
                if found is not None:
                    self._proved[name] = found
            self._loaded = weights
        for found in self._proved.values():  # sent now or earlier: a resumed run, which sends anew, notes the same
            notes.add(PROBE, found.mean)
        return self._cast

    def end(self) -> None:
        """End the processes of its engines."""
        for name in self.copied:
            self._cast[name].end()


def members_read(reads: Iterable[str]) -> set[str]:
    """The members of the cast whose capabilities are among what parts read."""
    return {name.removeprefix("cast:").split(".")[0] for name in reads if name.startswith("cast:")}


def moving(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that can change: with adapters they alone, in a follower all."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return trained or list(model.parameters())


def _twin(member: Member, apart: Apart | None) -> Member:
    """The same member with a model of its own; weights that never change are not copied. apart: who samples for those who learn."""
    frozen = member.role.liveness == "frozen"
    if frozen and member.device.type != "cpu" and apart is None:
        return member  # on a GPU sampling and learning take turns, so that one model is enough
    copied = set() if frozen else {id(p) for p in moving(member.model)}
    model = copy.deepcopy(member.model, {id(p): p for p in member.model.parameters() if id(p) not in copied})
    return Member(
        member.name, member.role, model, member.chat, member.context, None, member.packed, member.version,
        kv_budget=member.kv_budget, apart=apart if member.role.speaks() else None, said=member.said,
    )  # fmt: skip
