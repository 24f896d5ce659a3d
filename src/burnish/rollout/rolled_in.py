"""Replies that begin under a guide and are finished by the model alone."""

from __future__ import annotations

from dataclasses import replace

from burnish.core import randomness
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Sampling, Task
from burnish.rollout.candidates import Guide, started, write_guided
from burnish.rollout.starts import Reply, sample_key, write_on

TAG = "rolled_in"
AUTHOR = "roll_in"


@supplies("tokens:*", "mu:*", "tag:rolled_in")
def rolled_in(n: int, guide: Guide, *, temperature: float = 1.0, who: str = "policy", author: str = AUTHOR) -> Rollout:
    """n replies per task: h - 1 tokens by `author`, who is `who` under the guide, and the rest by `who` alone.

    h is uniform over 1 to the length of the reply under the guide, so that every reply has tokens by `who`.
    """

    def finished(reply: Reply, task: Task, step: Step) -> Reply:
        clock, index = step.clock, reply.start.index
        dice = randomness.rng(clock.seed, TAG, clock.step, clock.tick, task.key, index)
        kept = dice.randrange(len(reply))
        assert reply.said is not None
        turns = reply.start.turns
        if kept:
            turns = (*turns, replace(reply.said.first(kept), author=author))
        key = sample_key(clock, task, index, f"{TAG} end")  # other noise: the old one would often write the same again
        start = replace(reply.start, turns=turns, key=key)
        return Reply(start, most=step.settings.max_new_tokens - kept)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        begun = [started(task, n, step, Sampling(temperature), who, TAG) for task in tasks]
        write_guided([reply for some in begun for reply in some], guide, step)
        ends = [[finished(reply, task, step) for reply in some] for task, some in zip(tasks, begun, strict=True)]
        write_on([reply for some in ends for reply in some], step)
        for reply in (reply for some in ends for reply in some):
            reply.stopped = reply.stopped or "length"
        return [Group(task, [reply.trace() for reply in some]) for task, some in zip(tasks, ends, strict=True)]

    return Rollout(
        name=f"rolled_in({n}) under {guide.name}",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.generate", f"model:{who}.logits"}) | guide.reads,
        writes=names("tokens", ("task", who, author)) | names("mu", (who, author)) | names("tag", TAG),
    )
