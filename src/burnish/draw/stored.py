"""Groups drawn again from a store."""

from __future__ import annotations

from collections.abc import Callable

from burnish.core import randomness
from burnish.core.parts import Draw, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.select.remember import Store


@supplies("given:group")
def stored(store: Store, share: float = 1.0) -> Draw:
    """Groups of the store, drawn without replacement: share x the run's prompts, or as many as there are."""

    def call(step: Step) -> list[Task]:
        return [
            Task("past", group.task.prompt, {**group.task.given, "group": group}, group.task.key)
            for group in sampled_groups(store, share, step)
        ]

    return draw_from(store, call, ("group",))


def sampled_groups(store: Store, share: float, step: Step) -> list[Group]:
    dice = randomness.rng(step.clock.seed, "stored", store.name, step.clock.step, step.clock.tick)
    return dice.sample(store.groups, min(round(share * step.settings.prompts), len(store.groups)))


def draw_from(store: Store, call: Callable[[Step], list[Task]], given: tuple[str, ...]) -> Draw:
    """A draw whose tasks `call` makes of what a store holds; given: the columns that each of them has."""
    return Draw(
        name=f"stored({store.name})",
        call=call,
        reads=frozenset({f"store:{store.name}"}),
        writes=frozenset({"task:prompt"}) | names("given", given),
        state=(store,),
    )
