"""A method is a set of named models and one or more phases; each phase is one pass through the seven stages.

Building a Method checks its wiring. A part that reads a name that no part before it writes, a second writer of one
name, a stream that no part reads: each raises ValueError with what is missing and which parts could supply it.

What a method's file needs besides the stages can be imported from here: part types, `chain`, roles, data types, Option.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from burnish.core.option import Option
from burnish.core.parts import (
    Draw,
    Learning,
    Part,
    Publish,
    Rollout,
    StagePart,
    Stateful,
    chain,
    everything,
    flatten,
    names,
    per_trace,
    suppliers,
    supplies,
    to_followers,
    tokens_read,
)
from burnish.core.roles import Role, ema, frozen, roles, snapshot, soup, trained
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Sampling, Task, Trace

__all__ = [
    "Clock",
    "Draw",
    "Group",
    "Method",
    "Option",
    "Part",
    "Phase",
    "Publish",
    "Role",
    "Rollout",
    "Sampling",
    "Step",
    "Task",
    "Trace",
    "chain",
    "ema",
    "everything",
    "frozen",
    "method",
    "names",
    "per_trace",
    "roles",
    "snapshot",
    "soup",
    "supplies",
    "trained",
]

PLAINLY = Sampling()  # at temperature 1, from the whole distribution

MUST_BE_READ = ("stream:", "claim:", "score:", "pairs", "lists")  # a name that begins so and is not read is refused


@dataclass(frozen=True, kw_only=True)
class Phase:
    """draw -> rollout -> score -> select -> credit -> learn -> publish, run `times` times in each step."""

    draw: Draw
    rollout: Rollout
    score: Part = everything
    select: Part = everything
    credit: Part = everything
    learn: Learning
    publish: Publish = to_followers
    name: str = "main"
    times: int | Callable[[Clock], float] = 1

    def parts(self) -> list[StagePart]:
        return flatten({stage: getattr(self, stage) for stage in ("draw", "rollout", "score", "select", "credit")})


@dataclass(frozen=True)
class Method:
    """Named models and phases, checked when built.

    product   the model that the run trains and saves
    lr_share  multiplies the model's default learning rate, if the user gives none
    sampling  how replies are sampled where the user does not say: the paper's temperature and the like; None: in a way
              that the method fixes, which the user cannot change
    """

    models: Mapping[str, Role]
    phases: tuple[Phase, ...]
    product: str = "policy"
    name: str = "method"
    lr_share: float = 1.0
    sampling: Sampling | None = PLAINLY

    def __post_init__(self) -> None:
        if self.product not in self.models:
            raise ValueError(
                f"{self.name}: its product {self.product!r} is not among its models ({', '.join(self.models)})"
            )
        _check_roles(self)
        stores = {
            name
            for phase in self.phases
            for placed in phase.parts()
            for name in placed.part.writes
            if name.startswith("store:")
        }
        for phase in self.phases:
            _check_phase(self, phase, stores)

    @property
    def generates(self) -> bool:
        """Whether its product writes replies; a reward model only scores them."""
        return "generate" in self.models[self.product].can

    @property
    def samples(self) -> bool:
        """Whether replies are sampled for it."""
        parts = [phase.rollout for phase in self.phases]
        return any(name.endswith(".generate") for part in parts for name in part.reads) or any(
            name.startswith("mu:") for part in parts for name in part.writes
        )

    def sampled(self, **given: Any) -> Sampling:
        """How its replies are sampled where the user gives these settings of `Sampling`.

        From a part of the vocabulary, or under a penalty, log-probs are as drawn if they are compared with those of the
        sampler (a ratio); else they are of the whole distribution, which is what a preference loss is about.
        """
        if given and (self.sampling is None or not self.samples):
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            why = "samples in a way of its own" if self.samples else "samples no replies"
            raise ValueError(f"{self.name} {why}, so that {flags} would change nothing; leave it out")
        sampling = replace(self.sampling or PLAINLY, **given)
        changed = sampling.truncated or sampling.repetition_penalty != 1
        return replace(sampling, as_drawn=changed and any(_compares(phase) for phase in self.phases))

    def stateful(self) -> dict[str, Stateful]:
        """The objects with state, by name: what a checkpoint must hold in addition to the models."""
        by_name: dict[str, Stateful] = {}
        for phase in self.phases:
            for placed in phase.parts():
                for item in placed.part.state:
                    if by_name.setdefault(item.name, item) is not item:
                        raise ValueError(
                            f"{self.name}: two parts with state have the same name {item.name!r}; rename one of them"
                        )
        return by_name


def method(
    *,
    draw: Draw,
    rollout: Rollout,
    score: Part = everything,
    select: Part = everything,
    credit: Part = everything,
    learn: Learning,
    publish: Publish = to_followers,
    models: Mapping[str, Role],
    product: str = "policy",
    lr_share: float = 1.0,
    sampling: Sampling | None = PLAINLY,
) -> Method:
    """A method of one phase, stage by stage, and its models."""
    phase = Phase(draw=draw, rollout=rollout, score=score, select=select, credit=credit, learn=learn, publish=publish)
    return Method(models=models, phases=(phase,), product=product, lr_share=lr_share, sampling=sampling)


def _compares(phase: Phase) -> bool:
    asked = getattr(phase.learn, "logp_temperature", None)
    if asked is not None and asked != "run":
        return False  # log-probs of the whole distribution, at this temperature
    read = phase.learn.reads.union(*(term.reads for term in phase.learn.terms))
    read = read.union(*(placed.part.reads for placed in phase.parts()))
    return "stream:old" in read or any(name.startswith("mu:") for name in read)


def _check_roles(method: Method) -> None:
    for name, role in method.models.items():
        if role.follows is not None and role.follows not in method.models and role.follows != "base":
            raise ValueError(
                f"{method.name}: model {name!r} is {role.liveness} from {role.follows!r}, which is not among its "
                f"models ({', '.join(method.models)})"
            )


def _check_phase(method: Method, phase: Phase, stores: set[str]) -> None:
    where = f"{method.name}, phase {phase.name!r}"
    if phase.draw is None or phase.rollout is None:
        missing = "draw" if phase.draw is None else "rollout"
        raise ValueError(f"{where}: there is no part in stage {missing!r}; {_remedy(missing)}")
    have = {f"model:{name}.{can}" for name, role in method.models.items() for can in role.can} | stores
    wrote: dict[str, StagePart] = {}
    read: set[str] = set()
    for placed in phase.parts():
        for name in sorted(placed.part.reads):
            if name not in have:
                raise ValueError(f"{where}: {placed} reads {name!r}, which nothing before it writes; {_remedy(name)}")
        for name in sorted(placed.part.writes):
            if name in wrote and name not in placed.part.updates and not name.startswith("store:"):
                raise ValueError(
                    f"{where}: {placed} writes {name!r}, which {wrote[name]} wrote already; rename one or drop one"
                )
            wrote[name] = placed
        read |= placed.part.reads
        have |= placed.part.writes
    for name in sorted(phase.learn.reads - have):
        raise ValueError(f"{where}: learn reads {name!r}, which nothing in credit writes; {_remedy(name)}")
    read |= phase.learn.reads
    for term in phase.learn.terms:
        wanted = term.reads | tokens_read(term, have)
        for name in sorted(wanted):
            if name not in have:
                raise ValueError(
                    f"{where}: term {term.name!r} reads {name!r}, which nothing before it and none of the models "
                    f"supplies; {_remedy(name)}"
                )
        read |= wanted
        if method.models[term.trainee].liveness != "trained":
            raise ValueError(
                f"{where}: term {term.name!r} trains {term.trainee!r}, which is "
                f"{method.models[term.trainee].liveness}, not "
                "trained"
            )
    for name in sorted(phase.publish.reads - have):
        raise ValueError(
            f"{where}: publish ({phase.publish.name}) reads {name!r}, which none of the models supplies; "
            f"{_remedy(name)}"
        )
    for name, placed in wrote.items():
        if name.startswith(MUST_BE_READ) and name not in read:
            raise ValueError(
                f"{where}: {placed} writes {name!r}, but nothing after it reads it; add the part or term that does, or "
                f"drop {placed.part.name}"
            )


def _remedy(name: str) -> str:
    """The end of an error about a missing name: how to supply it."""
    if name.startswith("model:"):
        model, can = name.removeprefix("model:").split(".")
        return f"add {model}=... with the capability {can!r} to the models, e.g. models=roles({model}=frozen('policy'))"
    if name.startswith("given:"):
        column = name.removeprefix("given:")
        return (
            f"the task gives no {column!r}: choose a task or dataset that has it (a column {column!r}, for a dataset)"
        )
    factories = suppliers(name)
    return f"it could come from {', '.join(factories)}" if factories else "no part of burnish supplies it"
