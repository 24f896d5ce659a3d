"""Replies that are asked for, and replies as far as they are written. Every rollout that samples goes through here."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from burnish.core import randomness
from burnish.core.parts import Asks
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Sampling, Task, Trace, TraceId, Turn, input_keys
from burnish.engine.local import Request, Sample
from burnish.engine.mixture import Blend
from burnish.forward.kept_keys import Kept
from burnish.models.model import Model


@dataclass(frozen=True, eq=False)
class Start:
    """A reply that is asked for.

    turns        what it begins with: the prompt, perhaps more
    index        its place among the replies to the task
    key          of its noise: the same in every step that writes at it
    who, author  the model that writes it, and under which name
    settings     how it is sampled
    """

    task: Task
    turns: tuple[Turn, ...]
    index: int
    key: int
    who: str = "policy"
    author: str = "policy"
    tag: str = "sample"
    settings: Sampling = Sampling()


@dataclass(eq=False)
class Reply:
    """A reply as far as it is written. stopped: why it ended; empty while it is being written. id: of
    all its traces. most: how many tokens the next call writes, at most; None: as many as the run allows. until: texts
    after which the next call pauses. more: further fields of its requests (engine/request.py). kept: keys and values by
    the name of the model that has read it, where tokens are added one by one (rollout/candidates.py).
    """

    start: Start
    said: Turn | None = None
    stopped: str = ""
    most: int | None = None
    until: tuple[str, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)
    id: TraceId = field(default_factory=TraceId)
    kept: dict[str, Kept] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return 0 if self.said is None else len(self.said)

    def turns(self) -> tuple[Turn, ...]:
        """The prompt and all that was said after it."""
        return self.start.turns if self.said is None else (*self.start.turns, self.said)

    def tokens(self) -> Tensor:
        """The tokens of its turns."""
        turns = self.turns()
        return turns[0].tokens if len(turns) == 1 else torch.cat([turn.tokens for turn in turns])

    def trace(self) -> Trace:
        assert self.said is not None
        note = {"stopped": self.stopped} if self.stopped else {}
        turns, tags = (*self.start.turns, self.said), frozenset({self.start.tag})
        return Trace(turns, self.start.index, tags=tags, note=note, id=self.id)


@dataclass(eq=False)
class Open:
    """A group whose replies are being written."""

    task: Task
    replies: list[Reply]

    def finished(self) -> bool:
        return all(reply.stopped for reply in self.replies)

    def group(self) -> Group:
        return Group(self.task, [reply.trace() for reply in self.replies])


class Arrivals(Protocol):
    """Replies that are asked for while others are being written. rows: how many are under way together, at most."""

    @property
    def rows(self) -> int: ...

    def take(self, wait: bool) -> list[Reply]:
        """The replies that are asked for by now. wait: until there is one; none then means that no more will be."""
        ...

    def wrote(self, reply: Reply) -> None:
        """A reply has been written."""
        ...


def asked_for(asks: Asks, tasks: list[Task], step: Step) -> list[Open]:
    """What a rollout asks for, nothing of it written yet."""
    asked = zip(tasks, asks(tasks, step), strict=True)
    return [Open(task, [Reply(start) for start in starts]) for task, starts in asked]


def write_on(
    replies: Sequence[Reply],
    step: Step,
    *,
    most: int | None = None,
    blend: Blend | None = None,
    ended: Callable[[Reply], None] | None = None,
) -> None:
    """Each of these replies, all by one model, gets at most `most` tokens more; None: as many as its own `most` says.

    A reply that goes on is read again from its beginning, by the weights of now: the log-probs of its new tokens are
    those of these weights after the same text, and keys and values of older weights are nowhere used. Its noise depends
    on its key and on the position of the token, so weights that have not moved write what they would have written
    without a pause. ended: told of each reply that has ended, while others are still being written.
    """
    if not replies:
        return
    model, longest = step.models[replies[0].start.who], step.settings.max_new_tokens
    requests = [_request(reply, model, longest, reply.most if most is None else most) for reply in replies]
    others = [step.models[name] for name in blend.others] if blend else []

    def take(i: int, sample: Sample) -> None:
        grow(replies[i], sample, model, longest)
        if ended is not None and replies[i].stopped:
            ended(replies[i])

    found = model.generate(requests, others, blend.mix if blend else None, on_sample=None if ended is None else take)
    if ended is None:
        for i, sample in enumerate(found):
            take(i, sample)


def write_arriving(arrivals: Arrivals, who: str, step: Step, blend: Blend | None = None) -> None:
    """Write the replies that arrive, all by `who`, each to its end, until no more arrive. One that arrives while others
    are being written joins them. What is written depends on neither the order nor the time of arrival (`Start.key`).
    """
    model, longest = step.models[who], step.settings.max_new_tokens
    feed = _Feed(arrivals, model, longest)

    def take(i: int, sample: Sample) -> None:
        reply = feed.replies.pop(i)
        grow(reply, sample, model, longest)
        feed.wrote(i, reply)
        arrivals.wrote(reply)

    others = [step.models[name] for name in blend.others] if blend else []
    model.generate([], others, blend.mix if blend else None, on_sample=take, feed=feed)


class _Feed:
    """Replies that arrive, as requests to an engine.

    replies  those that are being written, by their number
    written  the number of the reply that ended with a turn, and the turns before it
    """

    def __init__(self, arrivals: Arrivals, model: Model, longest: int) -> None:
        self.arrivals, self.model, self.longest = arrivals, model, longest
        self.rows, self.number = arrivals.rows, 0
        self.replies: dict[int, Reply] = {}
        self.written: dict[Turn, tuple[int, tuple[Turn, ...]]] = {}

    def take(self, wait: bool) -> list[Request]:
        new = self.arrivals.take(wait)
        self.replies.update(enumerate(new, self.number))
        self.number += len(new)
        return [_request(reply, self.model, self.longest, reply.most, self._after(reply)) for reply in new]

    def wrote(self, number: int, reply: Reply) -> None:
        """A reply has been written: another may follow it."""
        assert reply.said is not None
        self.written[reply.said] = number, reply.start.turns

    def _after(self, reply: Reply) -> int | None:
        """The number of the reply that this one follows, with nothing changed before it; None where there is none."""
        turns = reply.start.turns
        number, before = self.written.pop(turns[-2], (None, ())) if len(turns) > 2 else (None, ())
        same = len(before) == len(turns) - 2 and all(map(operator.is_, before, turns))
        return number if same and all(turn.content is None for turn in turns) else None


def grow(reply: Reply, sample: Sample, model: Model, longest: int) -> None:
    """Append what was sampled to a reply."""
    start, before = reply.start, sum(len(turn) for turn in reply.turns())
    new = born(sample, start.author, model.version, start.turns[-1], start.settings)
    reply.said = new if reply.said is None else reply.said.followed_by(new)
    full = len(reply) >= longest or before + len(new) >= model.context
    paused = sample.stopped == "length"
    if reply.until and sample.stopped == "stop":
        paused = int(sample.tokens[-1]) not in model.chat.stops
    reply.stopped = "length" if paused and full else "" if paused else sample.stopped


def require_room(reply: Reply, model: Model) -> None:
    """Raise ValueError where a reply's prompt leaves no room for a token."""
    size = sum(len(turn) for turn in reply.turns())
    if size >= model.context:
        start = reply.start
        raise ValueError(
            f"task {start.task.key[:60]!r}: its prompt has {size} tokens, but the context of {start.who!r} "
            f"holds {model.context}: shorten it or drop such rows from the dataset"
        )


def _request(reply: Reply, model: Model, longest: int, most: int | None, after: int | None = None) -> Request:
    start, prompt = reply.start, reply.tokens()
    require_room(reply, model)
    left = longest - len(reply)
    size = left if most is None else min(most, left)
    keys = input_keys(reply.turns())
    how = {**start.settings.named(), "stop": reply.until, **reply.more}
    return Request(prompt, start.key, size, **how, said=len(reply), input_keys=keys, after=after)


def beginning(groups: Sequence[Open], step: Step) -> Callable[[Reply], None] | None:
    """For `write_on`: when the last reply of a group has ended, the scoring that waits for such groups begins. None
    where none waits.
    """
    if not step.eager:
        return None
    of = {id(reply): group for group in groups for reply in group.replies}

    def ended(reply: Reply) -> None:
        group = of[id(reply)]
        if group.finished():
            for begin in step.eager:
                begin(group.group(), step)

    return ended


def to_the_end(asks: Asks, blend: Blend | None = None) -> Callable[[list[Task], Step], list[Group]]:
    """A rollout's call: what it asks for, written to the end and put into groups."""

    def call(tasks: list[Task], step: Step) -> list[Group]:
        groups = asked_for(asks, tasks, step)
        replies = [reply for group in groups for reply in group.replies]
        write_on(replies, step, blend=blend, ended=beginning(groups, step))
        return [group.group() for group in groups]

    return call


def born(found: Sample, author: str, version: int, parent: Turn | None, settings: Sampling) -> Turn:
    """A turn of what was sampled: every token with the log-prob and the version of the weights that wrote it."""
    versions = torch.full((found.tokens.shape[0],), version)  # not cached: every step has a version of its own
    return Turn(
        found.tokens, author, found.logp, versions, parent, settings, allowed=found.allowed, canvas=found.canvas
    )


def sample_key(clock: Clock, task: Task, index: int, tag: str) -> int:
    """The key of one sample's noise: what it is for, and nothing else."""
    return randomness.key_of(clock.seed, tag, clock.step, clock.tick, task.key, index)
