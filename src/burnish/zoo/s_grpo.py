"""S-GRPO: Early Exit via Reinforcement Learning in Reasoning Models (arXiv 2505.07686).

One whole reply, and answers forced after beginnings of it (S-GRPO's serial group, arXiv 2505.07686).
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, score
from burnish.core import randomness
from burnish.core.parts import Part, Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.models.chat import Chat
from burnish.papers import Paper
from burnish.rollout.sample import continue_from, sample

S_GRPO = Paper("s-grpo", "2505.07686", "S-GRPO: Early Exit via Reinforcement Learning in Reasoning Models")


@supplies("score:early")
def halved_after_each_right() -> Part:
    """scores["early"] = 1 / 2^(k - 1) for the k-th correct reply of a group in its order, 0 for a wrong one.

    S-GRPO (arXiv 2505.07686): the order is from the earliest exit to the complete reasoning, so early exits score more.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            value = 1.0
            for trace in group.traces:
                right = trace.scores["correct"] > 0
                trace.scores["early"] = value if right else 0.0
                value = value / 2 if right else value
        return groups

    return Part(
        name="halved_after_each_right",
        call=call,
        reads=frozenset({"score:reward", "tag:exit"}),
        writes=frozenset({"score:early"}),
    )


@supplies("tag:exit", "tokens:guide")
def early_exits(exits: int, phrase: str, *, end: str = "</think>", who: str = "policy") -> Rollout:
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
        whole = [group.traces[0] for group in sample(1, who=who).call(tasks, step)]
        starts = []
        for task, trace in zip(tasks, whole, strict=True):
            rng = randomness.rng(clock.seed, "exit", clock.step, clock.tick, task.key)
            room = model.context - len(trace.turns[0]) - len(words) - 1  # the answer wants a token at least
            longest = max(0, min(room, _thought(trace.turns[1].tokens, model.chat, end)))
            cuts = sorted(rng.randint(1, longest) if longest else 0 for _ in range(exits))
            starts += [(task, _cut(trace, cut, words), i) for i, cut in enumerate(cuts)]
        found = continue_from(starts, who, step, tag="exit")
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


EXIT = "Time is limited, stop thinking and start answering.\n</think>\n\n"


@register(
    S_GRPO,
    family="policy",
    summary="One thought, answered early at several places: the sooner right, the better.",
    when="Replies are right but think too long, and most of the thought comes after the answer is known.",
    trial={"exits": 3},
)
def s_grpo(
    task: draw.Source,
    *,
    exits: Annotated[int, Option("Early exits of each reply; the group is one larger.", at_least=1)] = 7,
    eps: opt.ClipRange = 0.2,
    phrase: Annotated[str, Option("What ends a thought early.")] = EXIT,
    updates: opt.Updates = 1,
) -> Method:
    """S-GRPO: a serial group. One reply is sampled whole; at `exits` random places of it an answer is asked for.

    From the earliest exit to the whole reply: r_i = 1 / 2^(k - 1) for the k-th right answer, 0 for a wrong one
    A_i = r_i - mean r (no std)
    L = mean over replies of mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    No KL. A reply's tokens are the policy's: its share of the thought, and its answer; the phrase is not trained.
    The number of exits and eps are not printed. Departure: where a reply marks no end of its thought (</think>),
    all of it counts as thought.
    """
    return method(
        draw=draw.prompts(task),
        rollout=early_exits(exits, phrase),
        score=chain(score.verify(task), halved_after_each_right()),
        credit=chain(credit.group_relative(std=False, score="early"), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean), updates=updates),
        models=roles(),
    )
