"""Seats whose models are trained, too (--opponent own): the method learns each by itself (core/learners.py).

Each has its own copy of every model that the method trains or that follows one (critic, EMA, snapshot). With --lora
they are adapters on the same frozen weights (models/loader.py), so a seat more costs its adapters and their moments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from burnish.compose.seats import Opponent
from burnish.core.learners import POLICY, SEAT_MODEL, apart, own_model, seen_by
from burnish.core.method import Method, Part, Phase, Role, Step, chain
from burnish.core.types import Group
from burnish.learn.learn import plan_of

SEATS = "seats"  # the folder of a run with the models of the seats besides the policy's


def learned_apart(method: Method, opponent: Opponent) -> Method:
    """The method for the policy and, beside it, for each learner of other seats. A part that remembers is refused."""
    learners = opponent.learners
    if method.product != POLICY:
        raise ValueError(
            f"{method.name} trains {method.product!r}, and --opponent own trains another model by what it does to the "
            "policy; name a frozen opponent"
        )
    for phase in method.phases:
        _refuse(method, phase)
    copies: dict[str, dict[str, Role]] = {
        learner: {
            own_model(learner, name): _own(role, learner, method.models[learner].source)
            for name, role in method.models.items()
            if name != POLICY and name not in opponent.roles and _moves(role, method.models[learner].source)
        }
        for learner in learners
    }
    models = {**method.models, **{name: role for own in copies.values() for name, role in own.items()}}
    phases = tuple(_phase(phase, learners, frozenset(models)) for phase in method.phases)
    return replace(method, models=models, phases=phases)


def models_of_seats(method: Method) -> set[str]:
    """The models that a method has for other seats than the policy's."""
    return {own_model(learner, name) for learner in learners_of(method) for name in method.models} & set(method.models)


def learners_of(method: Method) -> list[str]:
    """The trained models of other seats than the policy's."""
    return list(dict.fromkeys(learner for phase in method.phases for learner in plan_of(phase).learners))


def _refuse(method: Method, phase: Phase) -> None:
    kept = [placed for placed in phase.parts() if placed.part.state and placed.stage in ("score", "select", "credit")]
    if kept:
        raise ValueError(
            f"{method.name} remembers what was played ({kept[0].part.name}), of all seats in one place, and --opponent "
            "own learns each seat from its own groups; use grpo, gigpo or ppo, or a frozen opponent"
        )
    samples = [one for one in phase.parts() if one.stage != "rollout" and f"model:{POLICY}.generate" in one.part.reads]
    if samples:
        raise ValueError(
            f"{method.name} samples more replies after the rollout ({samples[0].part.name}), where a seat's model "
            "would play the policy's seat; use grpo, gigpo or ppo with --opponent own"
        )
    if plan_of(phase).move is not None or plan_of(phase).search is not None:
        raise ValueError(
            f"{method.name} moves the weights by an update of its own, which knows one policy; use grpo, gigpo or ppo "
            "with --opponent own"
        )


def _moves(role: Role, source: str) -> bool:
    """Whether a seat needs its own: of a model that moves, and of the start of one that began elsewhere."""
    return role.liveness != "frozen" or (role.follows == POLICY and source != "base")


def _own(role: Role, learner: str, source: str) -> Role:
    """The role for the seat's models in place of the policy's."""
    follows = None if role.follows is None else own_model(learner, role.follows)
    return replace(role, follows=follows, source=source if role.source == "base" else role.source)


def _phase(phase: Phase, learners: tuple[str, ...], models: frozenset[str]) -> Phase:
    def by_learner(stage: Iterable[Part]) -> Part:
        return chain(*(_by_learner(atom, learners, models) for atom in stage))

    return replace(
        phase,
        score=by_learner(phase.score),
        select=by_learner(phase.select),
        credit=by_learner(phase.credit),
        learn=plan_of(phase).with_learners(*learners),
    )


def _by_learner(part: Part, learners: Iterable[str], models: frozenset[str]) -> Part:
    """The part, called with the groups of one learner at a time, in front of that learner's models."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        return [group for own, inside in apart(groups, step) for group in part.call(own, inside)]

    def begin(group: Group, step: Step) -> None:
        assert part.begin is not None
        learner = group.task.given.get(SEAT_MODEL)
        part.begin(group, seen_by(learner, step) if learner else step)

    asked = [name.removeprefix("model:").partition(".") for name in part.reads if name.startswith("model:")]
    more = {f"model:{own_model(learner, name)}.{can}" for learner in learners for name, _, can in asked}
    known = {read for read in more if read.removeprefix("model:").partition(".")[0] in models}
    begins = begin if part.begin is not None else None
    return replace(part, call=call, begin=begins, reads=part.reads | known, idle=None)
