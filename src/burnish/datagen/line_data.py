"""Labelled steps from reference solutions: a teacher replaces one line, and the verifier says whether it still passes.

The data of PRLCoder (arXiv 2502.01715): lines of the reference are right; a line that a teacher mutated or refactored
is right if the whole still passes the tests, else wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from burnish.core import randomness
from burnish.core.messages import text_of
from burnish.core.step import Settings, Step
from burnish.core.task import Task
from burnish.core.types import Clock, Sampling, Turn
from burnish.datagen.preference_data import Made, Row, prompt_in, task_at
from burnish.datagen.step_data import StepRecipe, unclosed
from burnish.models.build import Models
from burnish.rollout.completions import Prefix, continued
from burnish.score.judge import judge
from burnish.score.segments import is_comment, split_text
from burnish.tasks.replies import cut_to_replies
from burnish.tasks.source import Source

AT_ONCE = 8  # reference solutions whose lines are replaced between two writes
CHANGES = ("Change what it does in", "Rewrite, without changing what it does,")  # mutation, refactoring
ASK = (
    "A task and its solution, line by line.\n\nTask:\n{question}\n\nSolution:\n{solution}\n\n"
    "{change} line {number}:\n{line}\n\nReply with the new line alone."
)
_FENCED = re.compile(r"```[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Replaced:
    """A reference solution with one of its steps replaced."""

    task: Task
    steps: list[str]
    at: int

    @property
    def text(self) -> str:
        return "".join(self.steps)


Teacher = Callable[[Sequence[Replaced], StepRecipe, Step], list[str]]  # references and places -> new steps


def _resampled(asked: Sequence[Replaced], recipe: StepRecipe, step: Step) -> list[str]:
    """What the model writes at the place of a step, after the steps before it."""
    chat, limit = step.models["policy"].chat, step.settings.max_new_tokens
    prefixes = []
    for number, one in enumerate(asked):
        said = "".join(one.steps[: one.at])
        tokens = chat.reply(said)[: -len(chat.closing)] if said else chat.reply("")[:0]
        prompt = Turn(chat.prompt(one.task), "task")
        prefixes.append(Prefix(one.task, prompt, tokens, f"resampled {one.at}", number, limit))
    grown = continued(prefixes, "policy", step, Sampling(recipe.temperature))
    return [split_text(chat.text(turn.tokens), recipe.steps)[0] for turn, _ in grown]


def _rewritten(asked: Sequence[Replaced], recipe: StepRecipe, step: Step) -> list[str]:
    """What the model replies when it is asked in words to change a line, or to rewrite it."""
    chat, limit = step.models["policy"].chat, step.settings.max_new_tokens
    prefixes = []
    for number, one in enumerate(asked):
        question = one.task.prompt if isinstance(one.task.prompt, str) else text_of(one.task.prompt[-1])
        words = ASK.format(
            question=question,
            solution=one.text,
            change=CHANGES[number % len(CHANGES)],
            number=one.at + 1,
            line=one.steps[one.at].strip("\n"),
        )
        prompt = Turn(chat.prompt(Task("question", ({"role": "user", "content": words},), {}, one.task.key)), "task")
        empty = prompt.tokens[:0]
        prefixes.append(Prefix(one.task, prompt, empty, f"rewritten {one.at}", number, limit))
    grown = continued(prefixes, "policy", step, Sampling(recipe.temperature))
    return [_line_of(chat.text(turn.tokens)) for turn, _ in grown]


def _line_of(reply: str) -> str:
    """The line in a teacher's reply: the first one that is not empty, inside of a code block if there is one."""
    fenced = _FENCED.search(reply)
    lines = [line for line in (fenced[1] if fenced else reply).split("\n") if line.strip()]
    return lines[0].rstrip() if lines else ""


LINE_RULES: dict[str, Teacher] = {"resampled": _resampled, "rewritten": _rewritten}


def make_lines(
    models: Models,
    source: Source,
    settings: Settings,
    recipe: StepRecipe,
    *,
    model: str,
    start: int,
    count: int,
    seed: int = 0,
) -> Iterator[list[Made]]:
    """The rows of the training prompts [start, count): each reference solution, and it with one step replaced.

    recipe.completions replacements are asked for at each step that is no comment. A row has labels up to the replaced
    step, and behind it only if the whole still passes. "why" is the verifier's reason. A reference that does not pass
    gives no row.
    """
    cut_to_replies(source)
    if "demo" not in source.gives:
        raise ValueError(
            f"task {source.name!r} gives no reference solutions ('demo'), whose lines --rule {recipe.rule} replaces; "
            "choose another task, or a dataset with a column solution or completion"
        )
    seen = {task_at(source, i, seed).key for i in range(start)}
    for first in range(start, count, AT_ONCE):
        made = {i: Made(i) for i in range(first, min(first + AT_ONCE, count))}
        step = Step(Clock(0, 1, randomness.key_of("lines", seed)), models, settings)
        references: dict[int, Replaced] = {}
        for i in made:
            task = task_at(source, i, seed)
            made[i].repeated = task.key in seen
            seen.add(task.key)
            if not made[i].repeated:
                references[i] = Replaced(task, split_text(str(task.given["demo"]), recipe.steps), -1)
        for i, one, label, why in _labelled(source, references, recipe, step):
            made[i].replies += 1
            made[i].rows.append({**_row(one, label, why, recipe), "model": model})
        yield list(made.values())


def _labelled(
    source: Source, references: dict[int, Replaced], recipe: StepRecipe, step: Step
) -> Iterator[tuple[int, Replaced, bool, str]]:
    """References that pass, then every different replacement of one of their steps, each with its verdict."""
    verdicts = judge(source, [one.task for one in references.values()], [one.text for one in references.values()])
    right = {i: one for (i, one), verdict in zip(references.items(), verdicts, strict=True) if verdict.correct}
    yield from ((i, one, True, "") for i, one in right.items())
    asked = [
        (i, Replaced(one.task, one.steps, at))
        for i, one in right.items()
        for at, line in enumerate(one.steps)
        if not is_comment(line)
        for _ in range(recipe.completions)
    ]
    replacements: dict[tuple[int, str], Replaced] = {}
    for (i, one), new in zip(asked, LINE_RULES[recipe.rule]([one for _, one in asked], recipe, step), strict=True):
        ending = "\n" if one.steps[one.at].endswith("\n") else ""
        steps = [*one.steps[: one.at], new.rstrip("\n") + ending, *one.steps[one.at + 1 :]]
        replaced = Replaced(one.task, steps, one.at)
        if new.strip() and new.strip() != one.steps[one.at].strip():
            replacements[i, replaced.text] = replaced
    verdicts = judge(source, [one.task for one in replacements.values()], [one.text for one in replacements.values()])
    for ((i, _), one), verdict in zip(replacements.items(), verdicts, strict=True):
        yield i, one, verdict.correct, verdict.reason


def _row(one: Replaced, label: bool, why: str, recipe: StepRecipe) -> Row:
    if one.at < 0:
        labels: list[bool | None] = [True] * len(one.steps)
    else:
        behind: list[bool | None] = [True if label else None] * (len(one.steps) - one.at - 1)
        labels = [*[True] * one.at, label, *behind]
    steps, separator = unclosed(one.steps, recipe.steps)
    asked = {"prompt": prompt_in(one.task, recipe.style), "completions": steps, "labels": labels}
    return {**asked, "separator": separator, "correct": label, "why": why}
