"""Past experience drawn again: transitions of remembered episodes, or whole groups of replies."""

from __future__ import annotations

import math

from burnish import randomness
from burnish.nouns import Group, Task
from burnish.parts import Draw, names, supplies
from burnish.select.remember import Store
from burnish.step import Step


@supplies("given:trace", "given:turn")
def transitions(store: Store, n: int, author: str = "policy") -> Draw:
    """n transitions, drawn with replacement: a remembered trace and one of its turns by `author`."""

    def call(step: Step) -> list[Task]:
        clock = step.clock
        rng = randomness.rng(clock.seed, "transitions", store.name, clock.step, clock.tick, store.written)
        found = []
        for _ in range(n if store.groups else 0):
            group = rng.choice(store.groups)
            trace = rng.choice(group.traces)
            turn = rng.choice([i for i, turn in enumerate(trace.turns) if turn.author == author])
            found.append(
                Task("past", group.task.prompt, {**group.task.given, "trace": trace, "turn": turn}, group.task.key)
            )
        return found

    return Draw(
        name=f"transitions({store.name})",
        call=call,
        reads=frozenset({f"store:{store.name}"}),
        writes=frozenset({"task:prompt"}) | names("given", ("trace", "turn")),
        state=(store,),
    )


@supplies("given:group")
def past_groups(store: Store, recent: float) -> Draw:
    """As many remembered groups as the run has prompts, none twice: with the chance `recent` the last ones that were
    remembered, else any, drawn one after the other in proportion to exp(their mean reward)."""
    if not 0 <= recent <= 1:
        raise ValueError(f"a chance of {recent} for the most recent groups is not between 0 and 1")

    def call(step: Step) -> list[Task]:
        clock, n = step.clock, min(step.settings.prompts, len(store.groups))
        dice = randomness.rng(clock.seed, "past_groups", store.name, clock.step, clock.tick)
        if dice.random() < recent:
            found = store.groups[len(store.groups) - n :]
        else:  # the n largest of log(weight) + Gumbel noise are a draw without replacement by weight
            keys = [_mean_reward(group) - math.log(max(1e-300, dice.expovariate(1.0))) for group in store.groups]
            found = [store.groups[i] for i in sorted(range(len(keys)), key=lambda i: -keys[i])[:n]]
        return [
            Task("past", group.task.prompt, {**group.task.given, "group": group}, group.task.key) for group in found
        ]

    return Draw(
        name=f"past_groups({store.name})",
        call=call,
        reads=frozenset({f"store:{store.name}"}),
        writes=frozenset({"task:prompt"}) | names("given", ("group",)),
        state=(store,),
    )


def _mean_reward(group: Group) -> float:
    return sum(trace.scores["reward"] for trace in group.traces) / max(1, len(group.traces))
