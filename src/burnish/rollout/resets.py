"""Replies that start in the middle: of a demonstration, of a guide's reply, of an earlier reply of the policy's own.

A cut says how many tokens are kept: cut(tokens, chat, clock, dice) -> 0 .. len(tokens) - 1, 0 for a start from the
prompt.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from burnish.core import randomness
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.models.chat import Chat
from burnish.rollout.starts import Start, sample_key, to_the_end

Cut = Callable[[Tensor, Chat, Clock, random.Random], int]
Begun = tuple[Task, tuple[Turn, ...], int]


@supplies("tokens:demo")
def reset(
    n: int, cut: Cut, *, column: str = "demo", temperature: float | None = None, who: str = "policy", tag: str = "reset"
) -> Rollout:
    """n replies per task, each from a state of the demonstration that `cut` chooses: its beginning, then the policy's
    end.
    """
    check_count(n)

    def one(task: Task, prompt: Turn, demo: Tensor, i: int, step: Step) -> Start:
        kept = cut(demo, step.models[who].chat, step.clock, random_for(step.clock, "reset", task, i))
        before = (Turn(demo[:kept], "demo", parent=prompt),) if kept else ()
        return Start(
            task, (prompt, *before), i, sample_key(step.clock, task, i, tag), who, who, tag, step.sampling(temperature)
        )

    def asks(tasks: list[Task], step: Step) -> list[list[Start]]:
        chat = step.models[who].chat
        read = [(Turn(chat.prompt(task), "task"), chat.reply(str(task.given[column]))) for task in tasks]
        return [[one(task, *both, i, step) for i in range(n)] for task, both in zip(tasks, read, strict=True)]

    return Rollout(
        name=f"reset({n})",
        call=to_the_end(asks),
        asks=asks,
        reads=frozenset({"task:prompt", f"given:{column}", f"model:{who}.generate"}),
        writes=names("tokens", ("task", "demo", who)) | names("mu", who) | names("tag", tag),
    )


# ---------------------------------------------------------------------------------------------------------------- cuts


def anywhere(chance: float = 1.0) -> Cut:
    """With this chance a cut uniform in 1 .. length - 1, else a start from the prompt (DR-PO's and RLGF's)."""
    if not 0 <= chance <= 1:
        raise ValueError(f"a chance of {chance} is not between 0 and 1")

    def cut(tokens: Tensor, chat: Chat, clock: Clock, dice: random.Random) -> int:
        return dice.randint(1, len(tokens) - 1) if dice.random() < chance and len(tokens) > 1 else 0

    return cut


def line_ends(tokens: Tensor, chat: Chat) -> list[int]:
    """The numbers of tokens after which a line has just ended."""
    return [i + 1 for i, token in enumerate(tokens) if "\n" in chat.text(token[None])]


# -------------------------------------------------------------------------------------------------------------- pieces


def check_count(n: int) -> None:
    if n < 1:
        raise ValueError(f"n is {n}; at least 1 reply must be sampled for each task")


def random_for(clock: Clock, purpose: str, task: Task, index: int) -> random.Random:
    return randomness.rng(clock.seed, purpose, clock.step, clock.tick, task.key, index)


def first_tokens(turn: Turn, kept: int, author: str) -> Turn:
    return replace(turn.first(kept), author=author)


def in_groups(tasks: Sequence[Task], traces: list[Trace], n: int) -> list[Group]:
    return [Group(task, traces[k * n : (k + 1) * n]) for k, task in enumerate(tasks)]
