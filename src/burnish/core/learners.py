"""Seats whose models are trained, too: each learns from its own groups, by the method, as if it were alone.

A group of such a seat names its model in given["seat_model"]. In its traces that model's replies have the author
"policy", as the policy's have in any other: what is trained in a trace is the policy there. Parts and terms get a step
whose models are those of the seat, under the names that the method uses, so that nothing of one seat can reach the
weights of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from burnish.core.step import Notes, Step
from burnish.core.types import Group

SEAT_MODEL = "seat_model"  # in Task.given: the trained model of the seat whose group it is; absent for the policy's
POLICY = "policy"


def own_model(learner: str, name: str) -> str:
    """What a seat's own model is called that stands for the method's model `name`: the learner for the policy."""
    return learner if name == POLICY else f"{learner}_{name}"


def apart(groups: list[Group], step: Step) -> Iterator[tuple[list[Group], Step]]:
    """The groups of the policy, then those of each other learner, each with the step as the method sees it there.

    The metrics of other learners have their names before them: opponent/reward.
    """
    by_learner: dict[str, list[Group]] = {"": []}
    for group in groups:
        by_learner.setdefault(str(group.task.given.get(SEAT_MODEL, "")), []).append(group)
    yield by_learner.pop(""), step
    for learner, own in by_learner.items():
        inside = seen_by(learner, step)
        yield own, inside
        _absorb(step.notes, inside.notes, learner)


def seen_by(learner: str, step: Step) -> Step:
    """The step with the learner's models under the names of the method's, and notes of its own."""
    models = step.models.by_name
    own = {name: models[own_model(learner, name)] for name in models if own_model(learner, name) in models}
    hidden = {model.name for model in own.values()}
    by_name = {name: own.get(name, model) for name, model in models.items() if name not in hidden}
    return replace(step, models=replace(step.models, by_name=by_name), notes=Notes())


def _absorb(notes: Notes, own: Notes, learner: str) -> None:
    state = own.state_dict()
    notes.absorb({kind: {f"{learner}/{name}": value for name, value in some.items()} for kind, some in state.items()})
