"""Replies that the policy samples: plain, greedy, or after the beginning of a demonstration; and how rollouts join."""

from __future__ import annotations

import math
from collections.abc import Sequence

from burnish import randomness
from burnish.cast.blend import Blend
from burnish.cast.local import Request
from burnish.nouns import Clock, Group, Task, Trace, Turn
from burnish.parts import Rollout, names, supplies
from burnish.schedules import Schedule, at
from burnish.step import Step


@supplies("tokens:*", "mu:*", "tag:*")
def sample(
    n: int,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    who: str = "policy",
    tag: str = "sample",
    blend: Blend | None = None,
    author: str | None = None,
) -> Rollout:
    """n replies per task, sampled by `who`, from its own distribution or from a blend with other members'.

    The author of the replies is `who`, or `author` where the replies of a blend are to be told apart.
    """
    if n < 1:
        raise ValueError(f"n is {n}; at least 1 reply must be sampled for each task")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        prompts = [Turn(step.cast[who].chat.prompt(task), "task") for task in tasks]
        starts = [(task, (prompt,), i) for task, prompt in zip(tasks, prompts, strict=True) for i in range(n)]
        traces = continue_from(
            starts, who, step, tag=tag, temperature=temperature, top_k=top_k, top_p=top_p, blend=blend, author=author
        )
        return [Group(task, traces[k * n : (k + 1) * n]) for k, task in enumerate(tasks)]

    shown = f"sample({n})" if tag == "sample" else tag
    return Rollout(
        name=f"{shown} from {blend.name}" if blend else shown,
        call=call,
        reads=frozenset({"task:prompt", f"cast:{who}.generate"})
        | {f"cast:{other}.logits" for other in (blend.others if blend else ())},
        writes=names("tokens", ("task", author or who)) | names("mu", author or who) | names("tag", tag),
    )


def greedy(*, who: str = "policy") -> Rollout:
    """One greedy reply per task, tagged "greedy": a baseline that credit can read."""
    return sample(1, temperature=0.0, who=who, tag="greedy")


@supplies("tokens:demo")
def prefixed(
    keep_low: Schedule, keep_high: Schedule, *, column: str = "demo", temperature: float = 1.0, who: str = "policy"
) -> Rollout:
    """One hybrid reply per task: the first L tokens of a demonstration, then the policy goes on.

    L = floor(l |y*|) with l ~ U(keep_low, keep_high), at least 1 and at most |y*| - 1, so that the policy always
    writes at least one token (Prefix-RFT, arXiv 2507.01679).
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        chat, clock = step.cast[who].chat, step.clock
        low, high = at(keep_low, clock), at(keep_high, clock)
        starts = []
        for task in tasks:
            prompt = Turn(chat.prompt(task), "task")
            demo = chat.reply(str(task.given[column]))
            share = randomness.rng(clock.seed, "prefix", clock.step, task.key).uniform(low, high)
            length = max(1, min(math.floor(share * len(demo)), len(demo) - 1))
            starts.append((task, (prompt, Turn(demo[:length], "demo", parent=prompt)), 0))
        return [
            Group(task, [trace])
            for task, trace in zip(
                tasks, continue_from(starts, who, step, tag="hybrid", temperature=temperature), strict=True
            )
        ]

    return Rollout(
        name="prefixed",
        call=call,
        reads=frozenset({"task:prompt", f"given:{column}", f"cast:{who}.generate"}),
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

    return Rollout(
        name=" + ".join(rollout.name for rollout in rollouts),
        call=call,
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
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    blend: Blend | None = None,
    author: str | None = None,
) -> list[Trace]:
    """A trace for each start (task, turns so far, sample index): the turns and what `who` writes after them."""
    member, clock = step.cast[who], step.clock
    requests = []
    for task, turns, index in starts:
        prompt = Trace(turns).tokens
        if len(prompt) >= member.context:
            raise ValueError(
                f"task {task.key[:60]!r}: its prompt has {len(prompt)} tokens, but the context of {who!r} holds {member.context}: "
                "shorten it or drop such rows from the dataset"
            )
        key = sample_key(clock, task, index, tag)
        requests.append(Request(prompt, key, step.settings.max_new_tokens, temperature, top_k, top_p))
    traces = []
    others = [step.cast[name] for name in blend.others] if blend else []
    found_samples = member.generate(requests, others, blend.mix if blend else None)
    for (_, turns, index), found in zip(starts, found_samples, strict=True):
        turn = Turn(found.tokens, author or who, found.logp, member.version, turns[-1])
        traces.append(Trace((*turns, turn), index, tags=frozenset({tag}), note={"stopped": found.stopped}))
    return traces


def sample_key(clock: Clock, task: Task, index: int, tag: str) -> int:
    """The key of one sample's noise: what it is for, and nothing else."""
    return randomness.key_of(clock.seed, tag, clock.step, clock.tick, task.key, index)
