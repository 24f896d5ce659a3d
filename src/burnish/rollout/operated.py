"""Instructions rewritten by sequences of operations, and answers of other models to prompts."""

from __future__ import annotations

from collections.abc import Sequence

from burnish.core import randomness
from burnish.core.messages import prompt_shown
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.draw.instructor import OPERATIONS, Instructor
from burnish.draw.made import made_task, request_of
from burnish.judges.question import Question, Template
from burnish.judges.rewrites import SIX, new_prompt, rewrite_question
from burnish.models.chat import Chat
from burnish.score.judges.judge import Judge

TEXTS = "instructions"  # note of a trace: the instruction before, and after each operation


def token_limit(step: Step, reader: str) -> int:
    model = step.models[reader]
    return min(model.context, step.settings.max_length or model.context)


def _sequences(
    tasks: list[Task], instructor: Instructor, executor: Judge, template: Template, length: int, step: Step
) -> tuple[list[list[int]], list[list[str]]]:
    """Of each task the operations that the instructor chose, and the instruction before and after each of them.

    An operation whose result cannot be read leaves the instruction as it was.
    """
    clock = step.clock
    texts = [[request_of(task)] for task in tasks]
    chosen: list[list[int]] = [[] for _ in tasks]
    for k in range(length):
        for task, own in zip(tasks, chosen, strict=True):
            dice = randomness.rng(clock.seed, "operation", step.phase, clock.step, clock.tick, task.key, k)
            own.append(instructor.choose(own[-1] if own else None, dice))
        asked = [rewrite_question(template, t[-1], SIX[own[-1]]) for t, own in zip(texts, chosen, strict=True)]
        for written, (answer,) in zip(texts, executor.ask(asked, step), strict=True):
            said = None if answer.failed else new_prompt(answer.text, written[-1])
            written.append(written[-1] if said is None else said)
    step.notes.count("executor_calls", length * len(tasks))
    for i, operation in enumerate(SIX):
        step.notes.add(f"draw/{operation.name}", sum(own.count(i) for own in chosen), length * len(tasks))
    return chosen, texts


@supplies("tokens:executor")
def operated(instructor: Instructor, executor: Judge, template: Template, length: int) -> Rollout:
    """One sequence of `length` operations per task: each instruction that `executor` wrote is a turn by "executor"."""

    def call(tasks: list[Task], step: Step) -> list[Group]:
        chat, limit = step.models["policy"].chat, token_limit(step, "policy")
        groups = []
        for task, own, texts in zip(
            tasks, *_sequences(tasks, instructor, executor, template, length, step), strict=True
        ):
            turns = [Turn(chat.prompt(task), "task")]
            for text in texts[1:]:
                room = max(0, limit - sum(map(len, turns)))
                turns.append(Turn(chat.reply(text)[:room], "executor", parent=turns[-1]))
            groups.append(Group(task, [Trace(tuple(turns), note={OPERATIONS: own, TEXTS: texts})]))
        return groups

    return Rollout(
        name=f"operated({executor.name})",
        call=call,
        reads=executor.reads | {"task:prompt", "store:teams"},
        writes=names("tokens", ("task", "executor")),
        state=(instructor,),
    )


@supplies("tokens:demo")
def expanded(instructor: Instructor, executor: Judge, template: Template, length: int) -> Rollout:
    """The instruction after a sequence of operations, with the executor's answer as a demonstration.

    A sequence that changed nothing, and an answer that did not come, gives no group.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        _, texts = _sequences(tasks, instructor, executor, template, length, step)
        new = [made_task(task, own[-1]) for task, own in zip(tasks, texts, strict=True) if own[-1] != own[0]]
        step.notes.count("draw_made", len(new))
        replies = answers_of(executor, new, step)
        step.notes.count("executor_calls", len(new))
        made = [(task, answered_trace(task, text, "demo", step, 0)) for task, text in zip(new, replies, strict=True)]
        return [Group(task, [trace]) for task, trace in made if trace is not None]

    return Rollout(
        name=f"expanded({executor.name})",
        call=call,
        reads=executor.reads | {"task:prompt", "store:teams"},
        writes=names("tokens", ("task", "demo")),
        state=(instructor,),
    )


@supplies("tokens:rival", "tag:rival")
def answered(rivals: Sequence[Judge], *, author: str = "rival") -> Rollout:
    """One reply of each rival to each task, in the words of its own tokenizer, read again by the policy's.

    A rival is a model of the run or an endpoint. One that gives no answer has no trace.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        groups = [Group(task, []) for task in tasks]
        for i, rival in enumerate(rivals):
            for group, text in zip(groups, answers_of(rival, tasks, step), strict=True):
                if (trace := answered_trace(group.task, text, author, step, i)) is not None:
                    trace.note["rival"] = rival.name
                    group.traces.append(trace)
        return groups

    return Rollout(
        name=f"answered({', '.join(rival.name for rival in rivals)})",
        call=call,
        reads=frozenset({"task:prompt"}).union(*(rival.reads for rival in rivals)),
        writes=names("tokens", ("task", author)) | names("tag", author),
    )


def answers_of(who: Judge, tasks: list[Task], step: Step) -> list[str | None]:
    """What a model or an endpoint replies to each task; None where it gives no answer."""
    asked = [Question("answer/1", prompt_shown(task.prompt)) for task in tasks]
    return [None if answer.failed else answer.text for (answer,) in who.ask(asked, step)]


def answered_trace(task: Task, text: str | None, author: str, step: Step, index: int) -> Trace | None:
    """A task with a reply as `author` wrote it, cut to the longest reply and to the context; None without a reply."""
    if text is None:
        return None
    chat: Chat = step.models["policy"].chat
    prompt = Turn(chat.prompt(task), "task")
    room = min(step.settings.max_new_tokens, token_limit(step, "policy") - len(prompt))
    if room < 1:
        return None
    return Trace((prompt, Turn(chat.reply(text)[:room], author, parent=prompt)), index, tags=frozenset({author}))
