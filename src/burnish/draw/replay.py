"""Experience replay: draw transitions of stored episodes, or whole stored groups."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from burnish.core import randomness
from burnish.core.parts import Draw, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.select.remember import Store


@supplies("given:trace", "given:turn")
def transitions(store: Store, n: int, author: str = "policy") -> Draw:
    """n transitions, drawn with replacement, each stored one as likely as any other: a trace and one of its turns by
    `author`.
    """

    def call(step: Step) -> list[Task]:
        clock = step.clock
        rng = randomness.rng(clock.seed, "transitions", store.name, clock.step, clock.tick, store.written)
        stored = [
            (group.task, trace, i)
            for group in store.groups
            for trace in group.traces
            for i, turn in enumerate(trace.turns)
            if turn.author == author
        ]
        drawn = [rng.choice(stored) for _ in range(n if stored else 0)]
        return [
            Task("past", task.prompt, {**task.given, "trace": trace, "turn": turn}, task.key)
            for task, trace, turn in drawn
        ]

    return Draw(
        name=f"transitions({store.name})",
        call=call,
        reads=frozenset({f"store:{store.name}"}),
        writes=frozenset({"task:prompt"}) | names("given", ("trace", "turn")),
        state=(store,),
    )


@supplies("given:group")
def past_groups(store: Store, recent: float, n: int) -> Draw:
    """TBA's replay (arXiv 2503.18929): as many stored prompts as the run has prompts.

    Each is, with probability `recent`, one of the newest groups as sampled; otherwise a uniformly drawn prompt with n
    of its stored distinct replies, drawn without replacement in proportion to exp(reward).
    """
    if not 0 <= recent <= 1:
        raise ValueError(f"a chance of {recent} for the most recent groups is not between 0 and 1")

    def call(step: Step) -> list[Task]:
        clock = step.clock
        dice = randomness.rng(clock.seed, "past_groups", store.name, clock.step, clock.tick)
        newest = store.groups[-step.settings.prompts :]
        known = groups_by_task(store.groups)
        fresh = sum(dice.random() < recent for _ in newest)
        drawn = dice.sample(newest, fresh)
        for key in dice.sample(list(known), min(len(newest) - fresh, len(known))):
            drawn.append(_better_rewarded(known[key], n, dice))
        return [
            Task("past", group.task.prompt, {**group.task.given, "group": group}, group.task.key) for group in drawn
        ]

    return Draw(
        name=f"past_groups({store.name})",
        call=call,
        reads=frozenset({f"store:{store.name}"}),
        writes=frozenset({"task:prompt"}) | names("given", ("group",)),
        state=(store,),
    )


def groups_by_task(groups: list[Group]) -> dict[str, list[Group]]:
    """The groups of each task, newest first."""
    by_prompt: dict[str, list[Group]] = {}
    for group in reversed(groups):
        by_prompt.setdefault(group.task.key, []).append(group)
    return by_prompt


def _better_rewarded(groups: list[Group], n: int, dice: random.Random) -> Group:
    """n distinct replies of these groups, drawn without replacement in proportion to exp(reward) (Gumbel top-n)."""
    replies: dict[tuple[int, ...], Trace] = {}
    for trace in (trace for group in groups for trace in group.traces):
        replies.setdefault(tuple(trace.tokens.tolist()), trace)
    chances = [(t.scores["reward"] - math.log(max(1e-300, dice.expovariate(1.0))), t) for t in replies.values()]
    best = sorted(chances, key=lambda pair: -pair[0])[:n]
    return Group(groups[0].task, [trace for _, trace in best])


@supplies("given:replay")
def with_replies(drawn: Draw, store: Store, n: int) -> Draw:
    """The drawn tasks, each with n different stored traces of its own as given["replay"], drawn without replacement,
    and fewer where there are fewer (RLEP, arXiv 2507.07451).
    """

    def call(step: Step) -> list[Task]:
        known, clock = groups_by_task(store.groups), step.clock
        found = []
        for task in drawn.call(step):
            different: dict[tuple[int, ...], Trace] = {}
            for trace in (trace for group in known.get(task.key, []) for trace in group.traces):
                different.setdefault(tuple(trace.tokens.tolist()), trace)
            dice = randomness.rng(clock.seed, "with_replies", clock.step, clock.tick, task.key)
            replay = dice.sample(list(different.values()), min(n, len(different)))
            found.append(replace(task, given={**task.given, "replay": replay}))
        return found

    return replace(
        drawn,
        name=f"{drawn.name} with {n} of {store.name}",
        call=call,
        ahead=False,
        reads=drawn.reads | {f"store:{store.name}"},
        writes=drawn.writes | {"given:replay"},
        state=(*drawn.state, store),
    )
