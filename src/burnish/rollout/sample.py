"""Replies that the policy samples: plain, greedy, or after the beginning of a demonstration; and how rollouts join."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from burnish.core import randomness
from burnish.core.parts import Rollout, names, supplies
from burnish.core.schedules import Schedule, at
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.engine.mixture import Blend
from burnish.rollout.starts import Reply, Start, sample_key, to_the_end, write_on


@supplies("tokens:*", "mu:*", "tag:*")
def sample(
    n: int,
    *,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    who: str = "policy",
    tag: str = "sample",
    blend: Blend | None = None,
    author: str | None = None,
) -> Rollout:
    """n replies per task, sampled by `who`, from its own distribution or from a blend with other models'.

    temperature, top_k, top_p, min_p: a number departs from the run's way of sampling (--temperature and the like).
    The author of the replies is `who`, or `author` where the replies of a blend are to be distinguished.
    """
    if n < 1:
        raise ValueError(f"n is {n}; at least 1 reply must be sampled for each task")

    parted = {"top_k": top_k, "top_p": top_p, "min_p": min_p}
    cut: dict[str, Any] = {name: value for name, value in parted.items() if value is not None}

    def asks(tasks: list[Task], step: Step) -> list[list[Start]]:
        how = (who, author or who, tag, replace(step.sampling(temperature), **cut))
        found = []
        for task in tasks:
            prompt = (Turn(step.models[who].chat.prompt(task), "task"),)
            found.append([Start(task, prompt, i, sample_key(step.clock, task, i, tag), *how) for i in range(n)])
        return found

    shown = f"sample({n})" if tag == "sample" else tag
    own = who == "policy" and author in (None, who) and tag == "sample" and blend is None
    return Rollout(
        name=f"{shown} from {blend.name}" if blend else shown,
        call=to_the_end(asks, blend),
        asks=None if blend else asks,
        plain=n if own and temperature is None and not cut else None,
        reads=frozenset({"task:prompt", f"model:{who}.generate"})
        | ({f"model:{who}.mix", *(f"model:{other}.logits" for other in blend.others)} if blend else set()),
        writes=names("tokens", ("task", author or who)) | names("mu", author or who) | names("tag", tag),
    )


def greedy(*, who: str = "policy") -> Rollout:
    """One greedy reply per task, tagged "greedy": a baseline that credit can read."""
    return sample(1, temperature=0.0, who=who, tag="greedy")


@supplies("tokens:demo")
def prefixed(
    keep_low: Schedule,
    keep_high: Schedule,
    *,
    column: str = "demo",
    temperature: float | None = None,
    who: str = "policy",
) -> Rollout:
    """One hybrid reply per task: the first L tokens of a demonstration, then the policy goes on.

    L = floor(l |y*|) with l ~ U(keep_low, keep_high), at least 1 and at most |y*| - 1, so that the policy always
    writes at least one token (Prefix-RFT, arXiv 2507.01679).
    """

    def asks(tasks: list[Task], step: Step) -> list[list[Start]]:
        chat, clock = step.models[who].chat, step.clock
        low, high = at(keep_low, clock), at(keep_high, clock)
        found = []
        for task in tasks:
            prompt = Turn(chat.prompt(task), "task")
            demo = chat.reply(str(task.given[column]))
            share = randomness.rng(clock.seed, "prefix", clock.step, task.key).uniform(low, high)
            length = max(1, min(math.floor(share * len(demo)), len(demo) - 1))
            begun = (prompt, Turn(demo[:length], "demo", parent=prompt))
            found.append(
                [
                    Start(
                        task,
                        begun,
                        0,
                        sample_key(clock, task, 0, "hybrid"),
                        who,
                        who,
                        "hybrid",
                        step.sampling(temperature),
                    )
                ]
            )
        return found

    return Rollout(
        name="prefixed",
        call=to_the_end(asks),
        asks=asks,
        reads=frozenset({"task:prompt", f"given:{column}", f"model:{who}.generate"}),
        writes=names("tokens", ("task", "demo", who)) | names("mu", who) | names("tag", "hybrid"),
    )


def join(*rollouts: Rollout) -> Rollout:
    """All of them for every task, in one group."""

    def call(tasks: list[Task], step: Step) -> list[Group]:
        parts = [rollout.call(tasks, step) for rollout in rollouts]
        joined = []
        for groups in zip(*parts, strict=True):
            traces = [trace for group in groups for trace in group.traces]
            for i, trace in enumerate(traces):
                trace.index = i
            joined.append(Group(groups[0].task, traces))
        return joined

    def asks(tasks: list[Task], step: Step) -> list[list[Start]]:
        parts = [rollout.asks(tasks, step) for rollout in rollouts if rollout.asks]
        together = [[start for starts in one for start in starts] for one in zip(*parts, strict=True)]
        return [[replace(start, index=i) for i, start in enumerate(starts)] for starts in together]

    return Rollout(
        name=" + ".join(rollout.name for rollout in rollouts),
        call=call,
        asks=asks if all(rollout.asks for rollout in rollouts) else None,
        reads=frozenset().union(*(r.reads for r in rollouts)),
        writes=frozenset().union(*(r.writes for r in rollouts)),
        state=tuple(item for r in rollouts for item in r.state),
    )


def either(chance: float, first: Rollout, second: Rollout) -> Rollout:
    """The first for a whole batch with this chance, else the second (GKD's mix of samples and data)."""
    if not 0 <= chance <= 1:
        raise ValueError(f"a chance of {chance} is not between 0 and 1")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        clock = step.clock
        drawn = randomness.rng(clock.seed, "either", clock.step, clock.tick).random()
        return (first if drawn < chance else second).call(tasks, step)

    return Rollout(
        name=f"{first.name} with chance {chance:g}, else {second.name}",
        call=call,
        reads=first.reads | second.reads,
        writes=first.writes | second.writes,
        state=(*first.state, *second.state),
    )


def continue_from(
    starts: Sequence[tuple[Task, tuple[Turn, ...], int]],
    who: str,
    step: Step,
    *,
    tag: str = "sample",
    temperature: float | None = None,
    blend: Blend | None = None,
    author: str | None = None,
) -> list[Trace]:
    """A trace for each start (task, turns so far, sample index): the turns and what `who` writes after them."""
    clock, how = step.clock, (who, author or who, tag, step.sampling(temperature))
    replies = [Reply(Start(task, turns, i, sample_key(clock, task, i, tag), *how)) for task, turns, i in starts]
    write_on(replies, step, blend=blend)
    return [reply.trace() for reply in replies]
