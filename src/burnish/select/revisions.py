"""Bad paths that turn into good ones: the beginning of a bad episode, a revision, and the end of a good one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from burnish.core import randomness
from burnish.core.parts import Part, supplies
from burnish.core.schedules import Schedule, at
from burnish.core.step import Step
from burnish.core.types import Group, Trace, Turn
from burnish.models.chat import Chat

REVISIONS = (
    "That last step was a mistake. I will try another way.",
    "My last step does not lead to the goal. I change my plan.",
    "I see now that this step was wrong. Let me correct it.",
    "This is not working. I go back to what I know and try again.",
    "I made an error in my last step. The next one will be different.",
    "What I just did does not help. I need another action.",
    "I took a wrong turn there. Let me think again and fix it.",
    "The last step was not right, so I start from a better one.",
    "I should not have done that. Here is a better step.",
    "My plan was wrong up to here. I revise it now.",
)


@supplies("tokens:revision")
def revisions(
    alpha: Schedule,
    beta: float,
    *,
    words: Sequence[str] = REVISIONS,
    author: str = "policy",
    reader: str = "policy",
) -> Part:
    """The good episodes of each group, and for each bad one a row that turns it into a good one (Agent-R, 2501.11425).

    An episode is good if its reward is above alpha. A bad one has a reward more than beta below the largest; of the
    episodes with that reward it is joined with the one that shares its beginning longest, then the shortest one. The
    row: the bad episode up to its first bad step after that beginning and the environment's answer (author "past", not
    trained on), a revision (author "revision") that the environment answers with "ok.", and the good episode after the
    beginning that both share. Turns are shared if they have the same tokens. The revision is one of `words`. A bad
    episode without a bad step there, or whose bad step was its last, gives no row.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        model, kept, made = step.models[reader], [], 0
        for group in groups:
            good = [trace for trace in group.traces if trace.scores["reward"] > at(alpha, step.clock)]
            if not good:
                continue
            most = max(trace.scores["reward"] for trace in good)
            best = [trace for trace in good if trace.scores["reward"] == most]
            rows = []
            for trace in group.traces:
                joined = beside(trace, best) if most - trace.scores["reward"] > beta else None
                if joined is not None:
                    dice = randomness.rng(step.clock.seed, "revision", step.clock.step, group.task.key, trace.index)
                    row = spliced(trace, *joined, dice.choice(words), model.chat, author)
                    if len(row) <= model.context:
                        rows.append(row)
            made += len(rows)
            group.traces = [*good, *rows]
            for i, trace in enumerate(group.traces):
                trace.index = i
            kept.append(group)
        step.notes.add("dropped/no_good_episode", len(groups) - len(kept), max(1, len(groups)))
        step.notes.add("revised", made, max(1, sum(len(group.traces) for group in kept)))
        return kept

    return Part(
        name="revisions",
        call=call,
        reads=frozenset({"score:reward", "tag:judged", f"tokens:{author}"}),
        writes=frozenset({"tokens:revision", "tokens:past"}),
        updates=frozenset({f"tokens:{author}"}),
    )


def shared(bad: Trace, good: Trace) -> int:
    """How many turns two episodes share at their beginnings: those with the same tokens."""
    pairs = enumerate(zip(bad.turns, good.turns, strict=False))
    return next((i for i, (a, b) in pairs if not same(a, b)), min(len(bad.turns), len(good.turns)))


def same(a: Turn, b: Turn) -> bool:
    return a is b or (a.author == b.author and torch.equal(a.input_keys, b.input_keys))


def beside(bad: Trace, best: Sequence[Trace]) -> tuple[Trace, int] | None:
    """The episode of `best` with which a bad one is joined, and the bad step after which it is cut; None: nowhere."""
    good = max(best, key=lambda trace: (shared(bad, trace), -len(trace.turns)))
    first = next((i for i in bad.note["bad"] if i >= shared(bad, good)), len(bad.turns))
    return (good, first) if first + 1 < len(bad.turns) else None


def spliced(bad: Trace, good: Trace, first_bad: int, words: str, chat: Chat, author: str = "policy") -> Trace:
    """The bad trace up to the answer to turn `first_bad`, a revision, "ok.", the good trace after what both share."""
    turns = [bad.turns[0]]
    for turn in bad.turns[1 : first_bad + 2]:
        turns.append(replace(turn, author="past" if turn.author == author else turn.author, parent=turns[-1]))
    turns.append(Turn(chat.reply(words), "revision", parent=turns[-1]))
    turns.append(Turn(chat.observation("ok."), "env", parent=turns[-1]))
    for turn in good.turns[shared(bad, good) :]:
        turns.append(replace(turn, parent=turns[-1]))
    scores = {"reward": good.scores["reward"]}
    return Trace(tuple(turns), scores=scores, tags=frozenset({"revised"}), note={"bad": []})
