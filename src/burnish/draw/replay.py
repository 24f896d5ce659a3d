"""Past experience drawn again: transitions of remembered episodes, or whole groups of replies."""

from __future__ import annotations

import math
import random

from burnish import randomness
from burnish.nouns import Group, Task, Trace
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
def past_groups(store: Store, recent: float, n: int) -> Draw:
    """As many remembered prompts as the run has prompts. For each, with the chance `recent`: one of the newest groups, as it
    was sampled; else: any prompt, all alike, and n of all the replies to it that are remembered, drawn without replacement
    in proportion to exp(reward), the same reply once (TBA's replay, arXiv 2503.18929)."""
    if not 0 <= recent <= 1:
        raise ValueError(f"a chance of {recent} for the most recent groups is not between 0 and 1")

    def call(step: Step) -> list[Task]:
        clock = step.clock
        dice = randomness.rng(clock.seed, "past_groups", store.name, clock.step, clock.tick)
        newest = store.groups[-step.settings.prompts :]
        known = _by_prompt(store.groups)
        fresh = sum(dice.random() < recent for _ in newest)
        found = dice.sample(newest, fresh)
        for key in dice.sample(list(known), min(len(newest) - fresh, len(known))):
            found.append(_better_rewarded(known[key], n, dice))
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


def _by_prompt(groups: list[Group]) -> dict[str, list[Group]]:
    """The groups of each task, newest first."""
    found: dict[str, list[Group]] = {}
    for group in reversed(groups):
        found.setdefault(group.task.key, []).append(group)
    return found


def _better_rewarded(groups: list[Group], n: int, dice: random.Random) -> Group:
    """n of the replies in these groups: the n largest of log(weight) + Gumbel noise are a draw without replacement by weight."""
    replies: dict[tuple[int, ...], Trace] = {}
    for trace in (trace for group in groups for trace in group.traces):
        replies.setdefault(tuple(trace.tokens.tolist()), trace)
    chances = [(t.scores["reward"] - math.log(max(1e-300, dice.expovariate(1.0))), t) for t in replies.values()]
    best = sorted(chances, key=lambda pair: -pair[0])[:n]
    return Group(groups[0].task, [trace for _, trace in best])
