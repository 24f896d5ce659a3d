"""Tasks with a reply that is labelled good or bad, as a whole or step by step."""

from __future__ import annotations

from dataclasses import replace

from burnish.core import randomness
from burnish.core.parts import Draw, names, supplies
from burnish.core.step import Step
from burnish.core.task import Task
from burnish.draw.tasks import prompts
from burnish.tasks.data.scan import UNCLEAR_LABELS
from burnish.tasks.resolve import datasets_of
from burnish.tasks.source import Source


def has_labels(source: Source) -> bool:
    """Whether the rows are single replies with labels: also if only some have one, which `labelled_replies` refuses."""
    if {"demo", "label"} <= source.gives:
        return True
    if {"chosen", "rejected"} <= source.gives or {"demo", "mistake"} <= source.gives:
        return False
    return any(dataset.how_many("label")[0] for dataset in datasets_of(source))


def labelled_replies(source: Source) -> Draw:
    """Tasks with a reply ("demo"), and whether it is good ("label": true or false)."""
    if UNCLEAR_LABELS in source.gives:
        firsts = (
            one.first(lambda given: not isinstance(given.get("label", True), bool)) for one in datasets_of(source)
        )
        where, task = next(filter(None, firsts))
        raise ValueError(f"{where}: has the label {task.given['label']!r:.40}; labels of replies are true or false")
    return prompts(source, "demo", "label")


@supplies("given:steps", "given:labels")
def labelled_steps(source: Source) -> Draw:
    """Tasks with "steps" and "labels": one label for each step, a number in [0, 1] or a boolean, None without one.

    Of a task that has a right and a wrong reply instead ("demo" and "mistake"), one of the two is drawn; the reply is
    one step, labelled by its outcome. A model that is trained on such tasks is an outcome reward model.
    """
    if {"steps", "labels"} <= source.gives or not {"demo", "mistake"} <= source.gives:
        return prompts(source, "steps", "labels", tag="steps")
    plain = prompts(source, "demo", "mistake", tag="steps")

    def outcomes(tasks: list[Task], step: Step) -> list[Task]:
        labelled = []
        for task in tasks:
            right = randomness.rng(step.clock.seed, "outcome", step.clock.step, task.key).random() < 0.5
            reply = task.given["demo" if right else "mistake"]
            labelled.append(replace(task, given={**task.given, "steps": [reply], "labels": [right]}))
        return labelled

    heldout = plain.heldout
    assert heldout is not None
    return replace(
        plain,
        call=lambda step: outcomes(plain.call(step), step),
        heldout=lambda step: outcomes(heldout(step), step),
        writes=plain.writes | names("given", ("steps", "labels")),
    )
