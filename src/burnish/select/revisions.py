"""Bad paths that turn into good ones: the beginning of a bad episode, a revision, and the end of a good one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from burnish import randomness
from burnish.models.chat import Chat
from burnish.parts import Part, supplies
from burnish.schedules import Schedule, at
from burnish.step import Step
from burnish.types import Group, Trace, Turn

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

    An episode is good if its reward is above alpha; of equally good ones the shortest is the best. For each episode
    whose reward is more than beta below that of the best: its turns up to its first bad step and the environment's
    answer (author "past", not trained on), a revision (author "revision") that the environment answers with "ok.", and
    the best episode after the turns that the two share. The revision is one of `words`. A bad episode without a bad
    step, or whose bad step was its last, gives no row.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        model, kept, made = step.models[reader], [], 0
        for group in groups:
            good = [trace for trace in group.traces if trace.scores["reward"] > at(alpha, step.clock)]
            if not good:
                continue
            best = max(good, key=lambda trace: (trace.scores["reward"], -len(trace.turns)))
            rows = []
            for trace in group.traces:
                bad = best.scores["reward"] - trace.scores["reward"] > beta and trace.note["bad"] is not None
                if bad and trace.note["bad"] + 1 < len(trace.turns):
                    dice = randomness.rng(step.clock.seed, "revision", step.clock.step, group.task.key, trace.index)
                    row = spliced(trace, best, trace.note["bad"], dice.choice(words), model.chat, author)
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


def spliced(bad: Trace, good: Trace, first_bad: int, words: str, chat: Chat, author: str = "policy") -> Trace:
    """The bad trace up to the answer to turn `first_bad`, a revision, "ok.", the good trace after what both share."""
    same = 0
    while same < min(len(bad.turns), len(good.turns)) and bad.turns[same] is good.turns[same]:
        same += 1
    turns = [bad.turns[0]]
    for turn in bad.turns[1 : first_bad + 2]:
        turns.append(replace(turn, author="past" if turn.author == author else turn.author, parent=turns[-1]))
    turns.append(Turn(chat.reply(words), "revision", parent=turns[-1]))
    turns.append(Turn(chat.observation("ok."), "env", parent=turns[-1]))
    for turn in good.turns[same:]:
        turns.append(replace(turn, parent=turns[-1]))
    scores = {"reward": good.scores["reward"]}
    return Trace(tuple(turns), scores=scores, tags=frozenset({"revised"}), note={"bad": None})
