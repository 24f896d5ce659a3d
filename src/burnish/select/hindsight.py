"""Replies told again with the words that fit how they turned out."""

from __future__ import annotations

from random import Random

from torch import Tensor

from burnish.core import randomness
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.models.model import Model
from burnish.rollout.conditioned import conditioned


@supplies("pairs", "tag:own", "tokens:hindsight")
def relabel(right: str, wrong: str, *, threshold: float = 0.5, score: str = "reward", reader: str = "policy") -> Part:
    """Each sampled reply twice: under the instruction that it met and under the opposite one, paired in that order.

    A reply that scores more than the threshold met `right`, else `wrong`. Of the reply a random contiguous piece is
    taken: what comes before it stays as context (author "kept"), the piece itself is by "hindsight", what follows goes.
    The trace under its own instruction carries the tag "own". (HIR, arXiv 2302.05206.)
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        clock = step.clock
        for group in groups:
            told: list[Trace] = []
            for trace in group.traces:
                met = trace.scores[score] > threshold
                rng = randomness.rng(clock.seed, "hindsight", clock.step, clock.tick, group.task.key, trace.index)
                told += _told(
                    trace, group.task, (right, wrong) if met else (wrong, right), step.models[reader], len(told), rng
                )
            group.traces = told
            group.pairs = [(i, i + 1) for i in range(0, len(told), 2)]
        return [group for group in groups if group.traces]

    return Part(
        name="relabel",
        call=call,
        reads=frozenset({f"score:{score}", "tokens:policy"}),
        writes=frozenset({"pairs", "tag:own", "tokens:hindsight"}),
    )


def piece_of(length: int, rng: Random) -> tuple[int, int]:
    """A random contiguous piece [start, end) of a reply; the whole of it where it has at most three tokens."""
    if length <= 3:
        return 0, length
    start = rng.randrange(0, length - 3)
    return start, rng.randrange(start + 1, length + 1)


def _told(
    trace: Trace, task: Task, words: tuple[str, str], reader: Model, first: int, rng: Random
) -> tuple[Trace, ...]:
    """The trace under each of two instructions, its own first; nothing where no room is left for the reply."""
    prompts = [reader.chat.prompt(conditioned(task, each)) for each in words]
    room = reader.context - max(len(prompt) for prompt in prompts)
    reply = trace.turns[-1].tokens[: max(0, room)]
    if not len(reply):
        return ()
    start, end = piece_of(len(reply), rng)
    return tuple(
        Trace(_turns(prompt, reply, start, end), first + i, dict(trace.scores), tags=trace.tags | {tag})
        for i, (prompt, tag) in enumerate(zip(prompts, ("own", "other"), strict=True))
    )


def _turns(prompt: Tensor, reply: Tensor, start: int, end: int) -> tuple[Turn, ...]:
    asked = Turn(prompt, "task")
    kept = (Turn(reply[:start], "kept", parent=asked),) if start else ()
    return (asked, *kept, Turn(reply[start:end], "hindsight", parent=(kept or (asked,))[-1]))
