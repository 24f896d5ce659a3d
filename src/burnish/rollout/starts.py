"""Replies that are asked for, and replies as far as they are written. Every rollout that samples goes through here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from burnish import randomness
from burnish.cast.blend import Blend
from burnish.cast.local import Request, Sample
from burnish.nouns import Clock, Group, Task, Trace, Turn
from burnish.parts import Asks
from burnish.step import Step


@dataclass(frozen=True, eq=False)
class Start:
    """A reply that is asked for.

    turns        what it begins with: the prompt, perhaps more
    index        its place among the replies to the task
    key          of its noise: the same in every step that writes at it
    who, author  the member that writes it, and under which name
    """

    task: Task
    turns: tuple[Turn, ...]
    index: int
    key: int
    who: str = "policy"
    author: str = "policy"
    tag: str = "sample"
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(eq=False)
class Reply:
    """A reply as far as it is written. stopped: why it ended; empty while it goes on."""

    start: Start
    said: Turn | None = None
    stopped: str = ""

    def __len__(self) -> int:
        return 0 if self.said is None else len(self.said)

    def tokens(self) -> Tensor:
        """The prompt and all that was said after it."""
        return Trace(self.start.turns if self.said is None else (*self.start.turns, self.said)).tokens

    def trace(self) -> Trace:
        assert self.said is not None
        note = {"stopped": self.stopped} if self.stopped else {}
        return Trace((*self.start.turns, self.said), self.start.index, tags=frozenset({self.start.tag}), note=note)


def write_on(replies: Sequence[Reply], step: Step, *, most: int | None = None, blend: Blend | None = None) -> None:
    """Each of these replies, all by one member, gets at most `most` tokens more: to its end where nothing is said.

    A reply that goes on is read again from its beginning, by the weights of now: the log-probs of its new tokens are those
    of these weights after the same text, and keys and values of older weights are nowhere used. Its noise depends on its key
    and on the position of the token, so weights that have not moved write what they would have written without a pause.
    """
    if not replies:
        return
    who = replies[0].start.who
    member, longest = step.cast[who], step.settings.max_new_tokens
    requests = []
    for reply in replies:
        start, prompt = reply.start, reply.tokens()
        if len(prompt) >= member.context:
            raise ValueError(
                f"task {start.task.key[:60]!r}: its prompt has {len(prompt)} tokens, but the context of {who!r} holds {member.context}: "
                "shorten it or drop such rows from the dataset"
            )
        left = longest - len(reply)
        size = left if most is None else min(most, left)
        how = (start.temperature, start.top_k, start.top_p)
        requests.append(Request(prompt, start.key, size, *how, said=len(reply)))
    others = [step.cast[name] for name in blend.others] if blend else []
    found = member.generate(requests, others, blend.mix if blend else None)
    for reply, request, sample in zip(replies, requests, found, strict=True):
        new = replace(born(sample, reply.start.author, member.version), parent=reply.start.turns[-1])
        reply.said = new if reply.said is None else reply.said.followed_by(new)
        full = len(reply) >= longest or len(request.prompt) + len(new) >= member.context
        reply.stopped = sample.stopped if sample.stopped != "length" or full else ""


def written(starts: Sequence[Start], step: Step, blend: Blend | None = None) -> list[Trace]:
    """The starts, written to the end."""
    replies = [Reply(start) for start in starts]
    write_on(replies, step, blend=blend)
    return [reply.trace() for reply in replies]


def to_the_end(asks: Asks, blend: Blend | None = None) -> Callable[[list[Task], Step], list[Group]]:
    """A rollout's call: what it asks for, written to the end and put into groups."""

    def call(tasks: list[Task], step: Step) -> list[Group]:
        asked = asks(tasks, step)
        traces = iter(written([start for starts in asked for start in starts], step, blend))
        return [Group(task, [next(traces) for _ in starts]) for task, starts in zip(tasks, asked, strict=True)]

    return call


def born(found: Sample, author: str, version: int) -> Turn:
    """A turn of what was sampled: every token with the log-prob and the version of the weights that wrote it."""
    return Turn(found.tokens, author, found.logp, torch.full((len(found.tokens),), version))


def sample_key(clock: Clock, task: Task, index: int, tag: str) -> int:
    """The key of one sample's noise: what it is for, and nothing else."""
    return randomness.key_of(clock.seed, tag, clock.step, clock.tick, task.key, index)
