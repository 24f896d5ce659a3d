"""One whole reply, and answers forced after beginnings of it (S-GRPO's serial group, arXiv 2505.07686)."""

from __future__ import annotations

from torch import Tensor

from burnish.core import randomness
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.models.chat import Chat
from burnish.rollout.sample import continue_from, sample


@supplies("tag:exit", "tokens:guide")
def early_exits(
    exits: int, phrase: str, *, end: str = "</think>", temperature: float = 1.0, who: str = "policy"
) -> Rollout:
    """exits + 1 replies per task, in the order of their thoughts' lengths: the early exits, then the whole reply.

    An exit is the first P tokens of the whole reply's thought, P ~ Uniform{1, ..., |thought|}, then the phrase, by
    author
    "guide", then what `who` answers. The thought ends at `end`, or with the reply where it does not say `end`.
    """
    if exits < 1:
        raise ValueError(f"exits is {exits}; at least 1 early exit is needed to compare the whole reply with")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, clock = step.models[who], step.clock
        words = model.chat.written(phrase)
        whole = [group.traces[0] for group in sample(1, temperature=temperature, who=who).call(tasks, step)]
        starts = []
        for task, trace in zip(tasks, whole, strict=True):
            rng = randomness.rng(clock.seed, "exit", clock.step, clock.tick, task.key)
            room = model.context - len(trace.turns[0]) - len(words) - 1  # the answer wants a token at least
            longest = max(0, min(room, _thought(trace.turns[1].tokens, model.chat, end)))
            cuts = sorted(rng.randint(1, longest) if longest else 0 for _ in range(exits))
            starts += [(task, _cut(trace, cut, words), i) for i, cut in enumerate(cuts)]
        found = continue_from(starts, who, step, tag="exit", temperature=temperature)
        groups = []
        for k, (task, trace) in enumerate(zip(tasks, whole, strict=True)):
            trace.index = exits
            groups.append(Group(task, [*found[k * exits : (k + 1) * exits], trace]))
        return groups

    return Rollout(
        name=f"early_exits({exits})",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.generate"}),
        writes=names("tokens", ("task", "guide", who)) | names("mu", who) | names("tag", ("sample", "exit")),
    )


def _thought(tokens: Tensor, chat: Chat, end: str) -> int:
    """How many tokens of a reply are thought: all before `end`, or all but the stop token."""
    said, mark = tokens.tolist(), chat.written(end).tolist()
    for i in range(len(said) - len(mark) + 1):
        if said[i : i + len(mark)] == mark:
            return i
    return len(said) - int(said[-1] in chat.stops)


def _cut(trace: Trace, cut: int, words: Tensor) -> tuple[Turn, ...]:
    """The prompt, the first `cut` tokens of the reply with the log-probs they had, and the phrase."""
    prompt, reply = trace.turns
    turns: tuple[Turn, ...] = (prompt,)
    if cut:
        turns += (reply.first(cut),)
    return (*turns, Turn(words, "guide", parent=turns[-1]))
