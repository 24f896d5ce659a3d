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
from burnish.rollout.sample import continue_from
from burnish.rollout.starts import Start, sample_key, to_the_end
from burnish.score.judge import judge_traces, require_verifier
from burnish.tasks.source import Source

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


@supplies("tokens:*")
def handed_over(n: int, cut: Cut, *, first: str, then: str, temperature: float | None = None) -> Rollout:
    """n replies per task by two models: `first` writes a reply, `cut` keeps its beginning, `then` writes the rest.

    Both read the prompt as `then`'s chat template has it; the models must share a tokenizer.
    """
    check_count(n)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        chat, clock = step.models[then].chat, step.clock
        prompts = [Turn(chat.prompt(task), "task") for task in tasks]
        begun: list[Begun] = [
            (task, (prompt,), i) for task, prompt in zip(tasks, prompts, strict=True) for i in range(n)
        ]
        whole = continue_from(begun, first, step, tag="roll-in", temperature=temperature)
        starts: list[Begun] = []
        for (task, (prompt,), i), trace in zip(begun, whole, strict=True):
            said = trace.turns[-1]
            kept = cut(said.tokens, chat, clock, random_for(clock, "hand over", task, i))
            starts.append((task, (prompt, *([first_tokens(said, kept, first)] if kept else ())), i))
        return in_groups(tasks, continue_from(starts, then, step, tag="handed over", temperature=temperature), n)

    return Rollout(
        name=f"{first}, then {then}",
        call=call,
        reads=frozenset({"task:prompt", f"model:{first}.generate", f"model:{then}.generate"}),
        writes=names("tokens", ("task", first, then)) | names("mu", (first, then)),
    )


@supplies("tokens:past", "tokens:cue")
def restarted(
    source: Source, n: int, back: int, cue: str, *, temperature: float | None = None, who: str = "policy"
) -> Rollout:
    """n replies per task, then one more from the middle of a right one and one from the middle of a wrong one.

    The first right and the first wrong reply, where there are such, lose their last t lines (t uniform in 0 .. back;
    their stop token goes too) and become a turn by "past"; the words of `cue`, on a line of their own, follow as a turn
    by "cue" (none where there are no words); then the policy goes on.
    Those traces carry the tag "from right" or "from wrong".
    """
    check_count(n)
    require_verifier(source)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, clock = step.models[who], step.clock
        chat = model.chat
        begun = [(task, (Turn(chat.prompt(task), "task"),), i) for task in tasks for i in range(n)]
        groups = in_groups(tasks, continue_from(begun, who, step, tag="sample", temperature=temperature), n)
        starts: list[Begun] = []
        for k, trace, right in _first_right_and_wrong(source, groups, chat):
            prompt, said = trace.turns
            dice = random_for(clock, "restart", tasks[k], right)
            kept = len(said) - 1 if not (t := dice.randint(0, back)) else _without_lines(said.tokens, t, chat)
            past = first_tokens(said, kept, "past")
            turns = (prompt, past, *_cue(past, cue, chat))
            if len(Trace(turns)) < model.context:
                starts.append((tasks[k], turns, k * 2 + right))
        for (_, _, number), trace in zip(starts, _restart(starts, who, step, temperature), strict=True):
            group = groups[number // 2]
            trace.index, trace.tags = len(group.traces), frozenset({"from right" if number % 2 else "from wrong"})
            group.traces.append(trace)
        return groups

    return Rollout(
        name=f"restarted({n})",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.generate"}),
        writes=names("tokens", ("task", "past", "cue", who))
        | names("mu", who)
        | names("tag", ("from right", "from wrong")),
    )


# ---------------------------------------------------------------------------------------------------------------- cuts


def anywhere(chance: float = 1.0) -> Cut:
    """With this chance a cut uniform in 1 .. length - 1, else a start from the prompt (DR-PO's and RLGF's)."""
    if not 0 <= chance <= 1:
        raise ValueError(f"a chance of {chance} is not between 0 and 1")

    def cut(tokens: Tensor, chat: Chat, clock: Clock, dice: random.Random) -> int:
        return dice.randint(1, len(tokens) - 1) if dice.random() < chance and len(tokens) > 1 else 0

    return cut


def any_stage(stages: int) -> Cut:
    """One of `stages` start states, each as likely: the prompt, or the end of one of the first stages -
    1 pieces (R3).
    """
    return lambda tokens, chat, clock, dice: stage_starts(tokens, chat, stages)[dice.randrange(stages)]


def sliding_stage(stages: int) -> Cut:
    """The start state slides back over the run, from the last piece's to the prompt: one stage after the other (staged
    R3).
    """

    def cut(tokens: Tensor, chat: Chat, clock: Clock, dice: random.Random) -> int:
        stage = min(stages - 1, clock.step * stages // max(1, clock.of))
        return stage_starts(tokens, chat, stages)[stages - 1 - stage]

    return cut


def stage_starts(tokens: Tensor, chat: Chat, stages: int) -> list[int]:
    """Where `stages` pieces of a reply begin: 0, then floor(k length / stages), each moved back to the end of the last
    line that ended since the cut before, where one did: a piece is whole steps wherever steps are lines."""
    if stages < 1:
        raise ValueError(f"stages is {stages}; a reply has at least 1 piece")
    ends = line_ends(tokens, chat)
    starts = [0]
    for k in range(1, stages):
        here = k * len(tokens) // stages
        starts.append(max((end for end in ends if starts[-1] < end <= here), default=max(here, starts[-1])))
    return [min(start, len(tokens) - 1) for start in starts]


def line_ends(tokens: Tensor, chat: Chat) -> list[int]:
    """The numbers of tokens after which a line has just ended."""
    return [i + 1 for i, token in enumerate(tokens) if "\n" in chat.text(token[None])]


def _without_lines(tokens: Tensor, t: int, chat: Chat) -> int:
    """How many tokens are left when the last t lines go; at least 1."""
    body = tokens[:-1]
    starts = [0, *(end for end in line_ends(body, chat) if end < len(body))]
    return max(1, starts[max(0, len(starts) - t)])


# -------------------------------------------------------------------------------------------------------------- pieces


def check_count(n: int) -> None:
    if n < 1:
        raise ValueError(f"n is {n}; at least 1 reply must be sampled for each task")


def random_for(clock: Clock, purpose: str, task: Task, index: int) -> random.Random:
    return randomness.rng(clock.seed, purpose, clock.step, clock.tick, task.key, index)


def first_tokens(turn: Turn, kept: int, author: str) -> Turn:
    return replace(turn.first(kept), author=author)


def _cue(past: Turn, words: str, chat: Chat) -> list[Turn]:
    if not words:
        return []
    text = f"{words}\n" if chat.text(past.tokens).endswith("\n") else f"\n{words}\n"
    return [Turn(chat.written(text), "cue", parent=past)]


def in_groups(tasks: Sequence[Task], traces: list[Trace], n: int) -> list[Group]:
    return [Group(task, traces[k * n : (k + 1) * n]) for k, task in enumerate(tasks)]


def _restart(starts: list[Begun], who: str, step: Step, temperature: float | None) -> list[Trace]:
    keyed = [
        (task, turns, number % 2) for task, turns, number in starts
    ]  # noise by the task and the kind, not the batch
    return continue_from(keyed, who, step, tag="restart", temperature=temperature)


def _first_right_and_wrong(source: Source, groups: list[Group], chat: Chat) -> list[tuple[int, Trace, int]]:
    """(group, trace, 1 or 0) for the first right and the first wrong reply of more than one token in every group."""
    asked = [(k, group.task, trace) for k, group in enumerate(groups) for trace in group.traces]
    verdicts = judge_traces(source, [(task, trace) for _, task, trace in asked], chat)
    found: dict[tuple[int, int], Trace] = {}
    for (k, _, trace), verdict in zip(asked, verdicts, strict=True):
        if len(trace.turns[-1]) > 1:
            found.setdefault((k, int(verdict.correct)), trace)
    return [(k, trace, right) for (k, right), trace in found.items()]
