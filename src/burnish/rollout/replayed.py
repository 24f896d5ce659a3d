"""Right replies of an earlier policy, out of a store."""

from __future__ import annotations

from burnish import randomness
from burnish.parts import Rollout, names, supplies
from burnish.select.remember import Store
from burnish.step import Step
from burnish.types import Group, Task, Trace, Turn


@supplies("tokens:replay", "tag:replay")
def replayed(store: Store, n: int, *, author: str = "replay") -> Rollout:
    """n different stored replies to each task, drawn without replacement, as many as there are; written by `author`.

    Their tokens are those that were sampled. Log-probs and scores are not taken over: `credit.old` and `score.verify`
    make new ones.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        known = _by_task(store)
        return [Group(task, _drawn(known.get(task.key, []), n, author, task, step)) for task in tasks]

    return Rollout(
        name=f"replayed({store.name}, {n})",
        call=call,
        reads=frozenset({"task:prompt", f"store:{store.name}"}),
        writes=names("tokens", ("task", author)) | names("tag", author),
        state=(store,),
    )


def _by_task(store: Store) -> dict[str, list[Trace]]:
    """The different stored replies to each task, oldest first."""
    found: dict[str, dict[tuple[int, ...], Trace]] = {}
    for group in store.groups:
        own = found.setdefault(group.task.key, {})
        for trace in group.traces:
            own.setdefault(tuple(trace.tokens.tolist()), trace)
    return {key: list(traces.values()) for key, traces in found.items()}


def _drawn(stored: list[Trace], n: int, author: str, task: Task, step: Step) -> list[Trace]:
    clock = step.clock
    dice = randomness.rng(clock.seed, "replayed", clock.step, clock.tick, task.key)
    traces = []
    for i, trace in enumerate(dice.sample(stored, min(n, len(stored)))):
        turns = [trace.turns[0]]
        for turn in trace.turns[1:]:
            turns.append(Turn(turn.tokens, author, parent=turns[-1], settings=turn.settings))
        traces.append(Trace(tuple(turns), i, tags=frozenset({author})))
    return traces
