"""Samplers and graders: objects that hold the stage functions of a method and do them for one unit after the other.

Placed, not rewritten: `roll_out` and `through` of stages.py are what runs here, on members of the cast that this role reads
and no others. No Ray here but for fetching weights: placed/actors.py puts these objects into processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from burnish.cast.behind import Reader, members_read, moving
from burnish.cast.load import load_chat, stored_context
from burnish.cast.lora import Lora
from burnish.cast.models import resolve
from burnish.cast.roles import Role
from burnish.cast.stage import Cast, build
from burnish.method import Phase
from burnish.methods.table import Entry, find
from burnish.placed.desk import SAMPLER
from burnish.placed.units import Published, Unit, note_births, split_score, unit_outcome
from burnish.run.config import Config
from burnish.run.pipeline import Ahead
from burnish.run.planning import compose
from burnish.stages import roll_out, through
from burnish.step import Settings, Step
from burnish.tasks.source import Source

Fetch = Callable[[Any], dict[str, list[Any]]]


@dataclass(frozen=True)
class Spec:
    """What any process needs to build its share of a run.

    entry, task   the method and the tasks, where they are objects of the caller's; None where the configuration names them
    folder        where the caller works: relative paths mean the same everywhere
    """

    config: Config
    settings: Settings
    base: Path
    folder: str
    entry: Entry | None = field(default=None, repr=False)
    task: Source | None = field(default=None, repr=False)

    @property
    def threads(self) -> int:
        return self.config.options.threads or 1

    def enter(self) -> Entry:
        """Make this process one of the run's: its folder, its threads. The method's row of the table."""
        if Path(self.folder).is_dir():
            os.chdir(self.folder)
        torch.set_num_threads(self.threads)
        return self.entry or find(self.config.method)


class Doing:
    """What a process does, in words, and since when: the last thing that is known of one that is lost."""

    def __init__(self) -> None:
        self.now("starting")

    def now(self, what: str) -> None:
        self.what, self.since = what, time.time()

    def told(self) -> tuple[str, float]:
        """The words and the seconds since."""
        return self.what, time.time() - self.since


class Stagehand:
    """One sampler or one grader. fetch: gets the arrays of published weights."""

    def __init__(self, spec: Spec, role: str, fetch: Fetch, doing: Doing) -> None:
        self.spec, self.fetch, self.doing, self.loaded = spec, fetch, doing, ("", -1)
        _, method = compose(spec.enter(), spec.config, spec.task)
        self.phases = {phase.name: phase for phase in method.phases}
        reads = {name for phase in method.phases for part in _parts(phase, role) for name in part.reads}
        self.cast, self.moving = _cast_for(spec, role, method.cast, members_read(reads))
        doing.now("waiting for work")

    def rollout(self, unit: Unit) -> tuple[Ahead, dict[str, list[list[float]]]]:
        """Sample a unit on the weights that it asks for. With the proof of these weights, where they were loaded for it."""
        torch.set_num_threads(self.spec.threads)
        proofs = self._load(unit.weights)
        self.doing.now(f"sampling unit {unit.id}")
        made = unit_outcome(unit)
        made.walks[0].groups = roll_out(self.phases[unit.phase], unit.tasks, self._step(unit, made), made.seconds)
        note_births(unit, made)
        self.doing.now("waiting for work")
        return made, proofs

    def score(self, unit: Unit, made: Ahead) -> tuple[Ahead, dict[str, list[list[float]]]]:
        """Score what was sampled, up to the parts that need one place."""
        torch.set_num_threads(self.spec.threads)
        proofs = self._load(unit.weights)
        self.doing.now(f"scoring unit {unit.id}")
        parts, _ = split_score(self.phases[unit.phase].score)
        walk, step = made.walks[0], self._step(unit, made)
        walk.groups = through(parts, "score", walk.groups, step, made.seconds, made.trail)
        self.doing.now("waiting for work")
        return made, proofs

    def _step(self, unit: Unit, made: Ahead) -> Step:
        return Step(
            unit.clock, self.cast, self.spec.settings, made.notes, unit.phase, made.refusals, made.walks[0].dropped
        )

    @torch.no_grad()
    def _load(self, weights: Published | None) -> dict[str, list[list[float]]]:
        """Make these weights those of the members here; their log-probs of the probe, by member, where any was loaded."""
        if weights is None or not self.moving or weights.key == self.loaded:
            return {}
        self.doing.now(f"loading the weights of {weights.steps} steps")
        arrays = self.fetch(weights.ref)
        for name in self.moving:
            for p, kept in zip(moving(self.cast[name].model), arrays[name], strict=True):
                p.copy_(torch.tensor(kept))
            self.cast[name].version = weights.versions[name]
            self.cast[name].send(start=True)  # to the sampler's own engine, which proves that it runs them
        self.loaded = weights.key
        return {name: self.cast[name].proof() for name in self.moving if not self.cast[name].role.outputs}


def _parts(phase: Phase, role: str) -> list[Any]:
    return [phase.rollout] if role == SAMPLER else split_score(phase.score)[0]


def _cast_for(spec: Spec, kind: str, roles: Any, wanted: set[str]) -> tuple[Cast, list[str]]:
    """The members that are read, loaded; of the others the tokenizer alone. And the names of those whose weights move.

    A sampler's members may have an engine in a process of their own (vLLM); a grader needs none.
    """
    options = spec.config.options
    settings = replace(spec.settings, lag=0) if kind == SAMPLER else replace(spec.settings, engine="local")
    lora = Lora(options.lora) if options.lora is not None else None
    mine = {name: role for name, role in roles.items() if name in wanted}
    loaded = build(mine, spec.base, settings, lora=lora, device=options.device)
    members: dict[str, Any] = {}
    for name, role in roles.items():
        members[name] = loaded.members.get(name) or _reader(spec, name, role)
    return Cast(members), [name for name in mine if roles[name].liveness != "frozen"]


def _reader(spec: Spec, name: str, role: Role) -> Reader:
    path = spec.base if role.source == "base" else resolve(role.source)
    return Reader(name, role, load_chat(path), stored_context(path))
