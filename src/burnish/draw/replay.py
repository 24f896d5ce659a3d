"""Past experience drawn again: transitions of remembered episodes."""

from __future__ import annotations

from burnish import randomness
from burnish.nouns import Task
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
