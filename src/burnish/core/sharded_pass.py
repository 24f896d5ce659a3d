"""What ranks send each other: bytes made of JSON and safetensors, never pickle; and a pass that is divided among them.

The ranks of a run execute the same loop on the same data. Rollout and score are divided: each rank samples and scores
its portion of the tasks, and all get the groups of all, in the order that one process would have made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import safetensors.torch
from torch import Tensor

from burnish.core.pending_step import PartialStep, Sampled, Seconds, Trail, joined
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.core.types_json import plain

T = TypeVar("T")
Work = Callable[[list[Task], Step, PartialStep], list[Group]]


class Peers(Protocol):
    """The ranks of a run, as far as a pass needs them (models/ranks.py)."""

    def portion(self, items: Sequence[T], sizes: Sequence[int] | None = None) -> list[T]: ...

    def gather(self, data: bytes) -> list[bytes]: ...

    def apart(self) -> AbstractContextManager[None]: ...


def encode(head: Any, tensors: Sequence[Tensor]) -> bytes:
    """JSON-able values and tensors as bytes."""
    words = json.dumps(head).encode()
    numbered = {str(i): tensor.detach().cpu().contiguous() for i, tensor in enumerate(tensors)}
    return len(words).to_bytes(8, "little") + words + safetensors.torch.save(numbered)


def decode(data: bytes) -> tuple[Any, list[Tensor]]:
    """The inverse of `encode`."""
    begin = 8 + int.from_bytes(data[:8], "little")
    numbered = safetensors.torch.load(data[begin:])
    return json.loads(data[8:begin]), [numbered[str(i)] for i in range(len(numbered))]


def divided(ranks: Peers, tasks: Sequence[Task], work: Work, step: Step, seconds: Seconds, trail: Trail) -> list[Group]:
    """The groups that `work` makes of all tasks, of which each rank does its portion.

    work(tasks, step, outcome) may note, drop and refuse: what the ranks found is added up. If a rank refuses its
    portion (a NaN among the scores), the whole batch is refused, as one process would.
    Tasks that a rollout made itself arrive as records.
    """
    outcome = PartialStep(step.clock.step, step.phase, [Sampled([])])
    own = replace(step, notes=outcome.notes, refusals=outcome.refusals, dropped=outcome.passes[0].dropped, begun={})
    with ranks.apart():
        outcome.passes[0].groups = work(ranks.portion(tasks), own, outcome)
    joint = joined([_read(data) for data in ranks.gather(_written(outcome))], step.clock.step, step.phase)
    step.notes.absorb(joint.notes.state_dict())
    step.refusals += joint.refusals
    step.dropped += joint.passes[0].dropped
    trail += joint.trail
    for stage, spent in outcome.seconds.items():
        seconds[stage] = seconds.get(stage, 0.0) + spent
    known = {_asked(task): task for task in tasks}
    groups = joint.passes[0].groups
    for group in groups:
        group.task = known.get(_asked(group.task), group.task)
    if joint.refusals:
        step.drop(groups, "refused on another rank")
        return []
    return groups


def _asked(task: Task) -> tuple[str, str]:
    """What tells a task from others: its key, and its prompt, which a draw may have rewritten."""
    return task.key, json.dumps(plain(task.prompt))


def fingerprint(groups: Iterable[Group]) -> str:
    """A hash of what is learned from: tasks, tokens, scores, pairs and lists."""
    digest = hashlib.sha256()
    for group in groups:
        digest.update(repr((group.task.key, group.pairs, group.lists)).encode())
        for trace in group.traces:
            digest.update(repr((trace.index, sorted(trace.scores.items()), sorted(trace.tags))).encode())
            for turn in trace.turns:
                digest.update(turn.author.encode() + turn.tokens.numpy().tobytes())
    return digest.hexdigest()


def _written(outcome: PartialStep) -> bytes:
    """An outcome with the streams of its traces, which its record leaves out."""
    streams = [
        (i, j, name, stream)
        for i, group in enumerate(outcome.passes[0].groups)
        for j, trace in enumerate(group.traces)
        for name, stream in trace.streams.items()
    ]
    head = {"record": outcome.to_record(), "streams": [[i, j, name] for i, j, name, _ in streams]}
    return encode(head, [stream for *_, stream in streams])


def _read(data: bytes) -> PartialStep:
    head, tensors = decode(data)
    outcome = PartialStep.from_record(head["record"])
    for (i, j, name), stream in zip(head["streams"], tensors, strict=True):
        outcome.passes[0].groups[i].traces[j].streams[name] = stream
    return outcome
