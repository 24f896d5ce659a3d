"""Samplers and graders: run the rollout or score stage of a method for one unit after the other.

They call `roll_out` and `through` of loop.py, with only the models that their role reads. There is no Ray in this file
except for fetching weights: distributed/ray/actors.py puts workers into actors.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from burnish.config.options import Config
from burnish.core.loop import roll_out, through
from burnish.core.method import Phase
from burnish.core.parts import Part, Rollout, split_score
from burnish.core.pending_step import PartialStep
from burnish.core.roles import Role
from burnish.core.step import Settings, Step
from burnish.distributed.ray.arrays import as_weight
from burnish.distributed.ray.units import Published, Unit, note_births, unit_outcome
from burnish.distributed.ray.work_queue import SAMPLER
from burnish.methods.table import Entry, find
from burnish.models.build import Models, build
from burnish.models.known_models import resolve
from burnish.models.load import load_chat, stored_context
from burnish.models.snapshot import TokenizerOnly, models_read, moving
from burnish.reward_functions.resolve import RewardSpec
from burnish.run.plan import compose
from burnish.tasks.source import Source

if TYPE_CHECKING:
    from ray import ObjectRef

Arrays = dict[str, list[Any]]  # arrays of a model's weights that change, by model
Fetch = Callable[["ObjectRef[Arrays]"], Arrays]


@dataclass(frozen=True)
class Spec:
    """What a worker process needs to build its method and models.

    entry, task   the method and the task source, if they were passed as objects; None if the configuration names them
    folder        the driver's working directory, so that relative paths mean the same everywhere
    """

    config: Config
    settings: Settings
    base: Path
    folder: str
    entry: Entry | None = field(default=None, repr=False)
    task: Source | None = field(default=None, repr=False)
    rewards: tuple[RewardSpec, ...] | None = field(default=None, repr=False)

    @property
    def threads(self) -> int:
        return self.config.options.threads or 1

    def enter(self) -> Entry:
        """Set this process's working directory and threads; return the method's table entry."""
        if Path(self.folder).is_dir():
            os.chdir(self.folder)
        torch.set_num_threads(self.threads)
        return self.entry or find(self.config.method)


class Activity:
    """The current activity of a process and its start time, for heartbeats and errors about lost actors."""

    def __init__(self) -> None:
        self.now("starting")

    def now(self, what: str) -> None:
        self.what, self.since = what, time.time()

    def current(self) -> tuple[str, float]:
        """The activity, and seconds since it began."""
        return self.what, time.time() - self.since


class Worker:
    """A sampler or a grader. fetch: gets the arrays of published weights by reference."""

    def __init__(self, spec: Spec, role: str, fetch: Fetch, doing: Activity) -> None:
        self.spec, self.fetch, self.doing, self.loaded = spec, fetch, doing, ("", -1)
        _, method = compose(spec.enter(), spec.config, spec.task, spec.rewards)
        self.phases, self.product = {phase.name: phase for phase in method.phases}, method.product
        reads = {name for phase in method.phases for part in _parts(phase, role) for name in part.reads}
        self.models, self.moving = _models_for(spec, role, method.models, models_read(reads))
        doing.now("waiting for work")

    def rollout(self, unit: Unit) -> tuple[PartialStep, dict[str, list[list[float]]]]:
        """Sample a unit with its weights; return the outcome, and probe log-probs if the weights were loaded for it."""
        torch.set_num_threads(self.spec.threads)
        proofs = self._load(unit.weights)
        self.doing.now(f"sampling unit {unit.id}")
        made = unit_outcome(unit)
        made.passes[0].groups = roll_out(self.phases[unit.phase], unit.tasks, self._step(unit, made), made.seconds)
        note_births(unit, made)
        self.doing.now("waiting for work")
        return made, proofs

    def score(self, unit: Unit, made: PartialStep) -> tuple[PartialStep, dict[str, list[list[float]]]]:
        """Score a sampled unit with the stateless parts of score."""
        torch.set_num_threads(self.spec.threads)
        proofs = self._load(unit.weights)
        self.doing.now(f"scoring unit {unit.id}")
        parts, _ = split_score(self.phases[unit.phase].score)
        sampled, step = made.passes[0], self._step(unit, made)
        sampled.groups = through(parts, "score", sampled.groups, step, made.seconds, made.trail)
        self.doing.now("waiting for work")
        return made, proofs

    def _step(self, unit: Unit, made: PartialStep) -> Step:
        return Step(
            unit.clock,
            self.models,
            self.spec.settings,
            made.notes,
            unit.phase,
            made.refusals,
            made.passes[0].dropped,
            product=self.product,
        )

    @torch.no_grad()
    def _load(self, weights: Published | None) -> dict[str, list[list[float]]]:
        """Load these weights; return the probe log-probs by model, or nothing if they are loaded already."""
        if weights is None or not self.moving or weights.key == self.loaded:
            return {}
        self.doing.now(f"loading the weights of {weights.steps} steps")
        arrays = self.fetch(weights.ref)
        for name in self.moving:
            for p, array in zip(moving(self.models[name].module), arrays[name], strict=True):
                p.copy_(as_weight(array))
            self.models[name].weights_moved()
            self.models[name].version = weights.versions[name]
            self.models[name].send(start=True)  # to the sampler's engine, which verifies them
        self.loaded = weights.key
        return {name: self.models[name].proof() for name in self.moving if not self.models[name].role.outputs}


def _parts(phase: Phase, role: str) -> Sequence[Part | Rollout]:
    return [phase.rollout] if role == SAMPLER else split_score(phase.score)[0]


def _models_for(spec: Spec, kind: str, roles: Mapping[str, Role], wanted: set[str]) -> tuple[Models, list[str]]:
    """The models that this role reads (only the tokenizer of the others), and the names of those whose weights change.

    A sampler's models may use a subprocess engine (vLLM); a grader needs none.
    """
    options = spec.config.options
    settings = replace(spec.settings, lag=0) if kind == SAMPLER else replace(spec.settings, engine="local")
    read = {name: role for name, role in roles.items() if name in wanted}
    loaded = build(read, spec.base, settings, lora=options.adapters(), device=options.device, style=options.style())
    models: dict[str, Any] = {}  # or the tokenizer alone
    for name, role in roles.items():
        models[name] = loaded.by_name.get(name) or _reader(spec, name, role)
    return Models(models), [name for name in read if roles[name].liveness != "frozen"]


def _reader(spec: Spec, name: str, role: Role) -> TokenizerOnly:
    path = spec.base if role.source == "base" else resolve(role.source)
    return TokenizerOnly(name, role, load_chat(path, spec.config.options.style()), stored_context(path))
