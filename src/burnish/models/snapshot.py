"""A read-only copy of the models at one weight version, for sampling while training continues.

`take` copies the weights, in the thread that moves them; `cast_of` loads a copy into models of its own, in the thread
that samples. Models that the given parts read have a module of their own here, so that both threads can compute;
weights that never change are shared all the same. Of other models there is the tokenizer, and nothing that computes.

Where an engine in another process samples, it belongs to this copy: it is sent a copy when the copy is loaded here, and
proves against it that it runs it. The models that learn then sample for themselves (evaluations, refills) with their
own weights.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from burnish.core.roles import Role
from burnish.core.step import Notes
from burnish.engine.subprocess.engine import EngineSpec
from burnish.engine.subprocess.probe import NAME as PROBE
from burnish.engine.subprocess.probe import Difference
from burnish.forward.paths import note, paths_of
from burnish.models.build import Models
from burnish.models.chat import Chat
from burnish.models.model import Model
from burnish.models.ranks import Ranks


@dataclass(frozen=True, eq=False)
class WeightSnapshot:
    """The weights and the version of each copied model, at one moment."""

    versions: dict[str, int]
    tensors: dict[str, list[Tensor]] = field(repr=False)


class TokenizerOnly:
    """A model of which there is no copy: its tokenizer, and nothing that computes."""

    def __init__(self, name: str, role: Role, chat: Chat, context: int) -> None:
        self.name, self.role, self.chat, self.context = name, role, chat, context

    def __getattr__(self, name: str) -> object:
        raise AttributeError(
            f"a part in rollout or score asks for {name!r} of {self.name!r}, which it does not declare; add "
            f"'model:{self.name}.CAPABILITY' to what the part reads, so that the model's weights are kept for it"
        )


class SnapshotModels:
    """The same models on earlier weights.

    reads: names like "model:policy.generate"
    ranks: how the thread that samples exchanges with the other ranks; by default as the one that learns
    """

    def __init__(self, models: Models, reads: Iterable[str], ranks: Ranks | None = None) -> None:
        ranks = ranks or models.ranks
        wanted = models_read(reads)
        self.live = models
        self.copied = [model.name for model in models if model.name in wanted and model.role.liveness != "frozen"]
        members: dict[str, Any] = {}
        for model in models:
            reader = TokenizerOnly(model.name, model.role, model.chat, model.context)
            members[model.name] = _twin(model, models.ahead, ranks) if model.name in wanted else reader
        self._models = Models(members, ranks)
        self._proved: dict[str, Difference] = {}  # of each engine apart, since it was sent its weights
        self._loaded: WeightSnapshot | None = None
        self._taken: WeightSnapshot | None = None

    @torch.no_grad()
    def take(self) -> WeightSnapshot:
        """The weights as they are now; the same object as long as no version changed."""
        versions = {name: self.live[name].version for name in self.copied}
        if self._taken is None or self._taken.versions != versions:
            tensors = {name: [p.detach().clone() for p in moving(self.live[name].module)] for name in self.copied}
            self._taken = WeightSnapshot(versions, tensors)
        return self._taken

    @torch.no_grad()
    def cast_of(self, weights: WeightSnapshot, notes: Notes) -> Models:
        """The models on these weights, until the next call. `notes` gets how far an engine apart is from them."""
        if weights is not self._loaded:
            for name in self.copied:
                twin = self._models[name]
                for p, tensor in zip(moving(twin.module), weights.tensors[name], strict=True):
                    p.copy_(tensor)
                twin.weights_moved()
                twin.version = weights.versions[name]
                gap = twin.send(start=True)
                if gap is not None:
                    self._proved[name] = gap
            self._loaded = weights
        for gap in self._proved.values():  # sent now or earlier: a resumed run, which sends anew, notes the same
            notes.add(PROBE, gap.mean)
        return self._models

    def end(self) -> None:
        """End the processes of its engines."""
        for name in self.copied:
            self._models[name].end()


def models_read(reads: Iterable[str]) -> set[str]:
    """The models whose capabilities are among what parts read."""
    return {name.removeprefix("model:").split(".")[0] for name in reads if name.startswith("model:")}


def moving(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that can change: with adapters they alone, in a follower all."""
    trained = [p for p in module.parameters() if p.requires_grad]
    return trained or list(module.parameters())


def _twin(model: Model, engine_spec: EngineSpec | None, ranks: Ranks) -> Model:
    """The same model with a module of its own; weights that never change are not copied. engine_spec: what samples for
    it. ranks: with which it divides its work.
    """
    frozen = model.role.liveness == "frozen"
    if frozen and model.device.type != "cpu" and engine_spec is None:
        return model  # on a GPU sampling and learning take turns, so that one model is enough
    copied = set() if frozen else {id(p) for p in moving(model.module)}
    module = copy.deepcopy(model.module, {id(p): p for p in model.module.parameters() if id(p) not in copied})
    note(module, paths_of(model.module))
    return Model(
        model.name,
        model.role,
        module,
        model.chat,
        model.context,
        None,
        model.packed,
        model.version,
        kv_budget=model.kv_budget,
        engine_spec=engine_spec if model.role.speaks() else None,
        warnings=model.warnings,
        token_room=model.token_room,
        ranks=ranks,
    )
