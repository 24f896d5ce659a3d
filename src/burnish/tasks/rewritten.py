"""Other ways to write the same tasks: teachers who err, styles of working, dialects. For data of a chosen kind.

    countdown:2,skill=0.4            a demonstration is right with this probability, else the task's own mistake
    add:3,style=bare                 the answer alone; `checked` repeats the last step, `spoken` says each step
    countdown:2,style=hunt           tries that miss are shown, up to four, before the last one
    countdown:2,style=straight       one try and no more
    countdown:2,dialect=1            every letter and sign of prompts and replies is another, one to one

A mixture of them is a corpus: `add:3,style=bare,skill=0.3` beside `add:3,style=checked,skill=0.3` by weights.
What is changed depends on the task alone, so it is the same in every epoch and for every seed of a run.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from burnish.core.randomness import rng
from burnish.core.task import Task, Verdict
from burnish.tasks.countdown import Countdown, Round
from burnish.tasks.source import EagerScoring, Scoring, Source
from burnish.tasks.task_set import TaskSet, leaves, task_set

OPTIONS = ("style", "skill", "dialect")
DIALECTS = 5
_SIGNS = "+-*=,?:"
_OTHERS = "&|^~;!_"


def rewritten(source: Source, options: Mapping[str, object]) -> TaskSet:
    """The source with its demonstrations in a style, by a teacher of some skill, and all of it in a dialect."""
    tasks = task_set(source)
    if missing := {"demo", "mistake"} - tasks.gives:
        raise ValueError(
            f"task {source.name!r} has no {' and no '.join(sorted(missing))}, so it cannot be rewritten by "
            f"{', '.join(options)}; choose a task with worked solutions, such as add or countdown"
        )
    if "style" in options:
        tasks = tasks.changed(_Styled(_style(str(options["style"]), source)))
    if "skill" in options:
        tasks = tasks.changed(_Taught(_share(options["skill"], source)))
    if "dialect" in options:
        number = options["dialect"]
        if not isinstance(number, int) or not 0 <= number < DIALECTS:
            raise ValueError(f"task {source.name!r}: there is no dialect={number}; choose one of 0 to {DIALECTS - 1}")
        tables = dialect(number)
        tasks = replace(tasks.changed(_Said(tables[0])), scoring=Understood(tasks.scoring, tables[1]))
    return tasks


def _share(value: object, source: Source) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"task {source.name!r}: skill={value} is not a share of right demonstrations, 0 to 1")
    return float(value)


# -------------------------------------------------------------------------------------------------------- the styles

Style = Callable[[Task, str], str]  # (the task, "demo" or "mistake") -> the reply


def style_of(reply: str) -> str:
    """The style that a reply is written in: bare, checked, spoken, or plain."""
    working = reply.partition("answer:")[0].split("\n")
    lines = [line for line in working if line.strip()]
    if not lines:
        return "bare"
    if lines[-1].startswith("check "):
        return "checked"
    return "spoken" if all(line.startswith("so ") for line in lines) else "plain"


def tries_of(reply: str) -> int:
    """How many tries a reply to `countdown` gives up: its lines that end with "no"."""
    return sum(line.rstrip().endswith(" no") for line in reply.split("\n"))


def _style(name: str, source: Source) -> Style:
    by_text: dict[str, Callable[[list[str]], list[str]]] = {
        "plain": lambda lines: lines,
        "bare": lambda lines: lines[-1:],
        "checked": lambda lines: [*lines[:-1], *(f"check {line}" for line in lines[-2:-1]), lines[-1]],
        "spoken": lambda lines: [*(f"so {line}" for line in lines[:-1]), lines[-1]],
    }
    if name in by_text:
        change = by_text[name]
        return lambda task, which: "\n".join(change(str(task.given[which]).split("\n")))
    if name in ("hunt", "straight", "filler"):
        families = [leaf for leaf in leaves(source) if isinstance(leaf, Countdown)]
        if len(families) != 1:
            raise ValueError(f"task {source.name!r}: style={name} is for countdown alone, because it writes tries")
        family = families[0]
        return lambda task, which: _hunted(family, task, which, name)
    raise ValueError(
        f"task {source.name!r}: there is no style={name}; choose one of {', '.join(by_text)}, hunt, straight, filler"
    )


MOST_TRIES = 4


def _hunted(family: Countdown, task: Task, which: str, how: str) -> str:
    """A reply to countdown that tries until it hits (hunt), once (straight), or waits as long as a hunt (filler)."""
    problem: Round = task.given["problem"]
    dice = rng(task.key, how if how != "filler" else "hunt", which)
    tries = family.misses(problem, dice, MOST_TRIES) if how != "straight" else []
    if how == "filler":
        tries = ["." * len(line) for line in tries]
    return family.reply(problem, dice, tries, right=which == "demo")


# ---------------------------------------------------------------------------------------- teachers, and what they say


@dataclass(frozen=True)
class _Styled:
    style: Style

    def __call__(self, split: str, task: Task) -> Task:
        texts = {which: self.style(task, which) for which in ("demo", "mistake")}
        return replace(task, given={**task.given, **texts})


@dataclass(frozen=True)
class _Taught:
    """The demonstration is the mistake with probability 1 - skill, by a coin that does not look at the problem."""

    skill: float

    def __call__(self, split: str, task: Task) -> Task:
        if rng(task.key, "taught").random() < self.skill:
            return task
        return replace(task, given={**task.given, "demo": task.given["mistake"]})


def dialect(number: int) -> tuple[dict[int, str], dict[int, str]]:
    """The tables of a dialect, there and back: letters are permuted, and signs are other signs. 0 changes nothing."""
    if number == 0:
        return {}, {}
    dice = random.Random(number)
    lower, upper = (dice.sample(letters, 26) for letters in (string.ascii_lowercase, string.ascii_uppercase))
    there = dict(zip(string.ascii_lowercase + string.ascii_uppercase, (*lower, *upper), strict=True))
    others = dice.sample(_OTHERS, len(_OTHERS))
    for sign, other in zip(_SIGNS, others, strict=True):
        there |= {sign: other, other: sign}
    return str.maketrans(there), str.maketrans({other: one for one, other in there.items()})


@dataclass(frozen=True)
class _Said:
    """Prompt, demonstration and mistake in another dialect; the facts that the verifier reads stay as they are."""

    table: Mapping[int, str]

    def __call__(self, split: str, task: Task) -> Task:
        if isinstance(task.prompt, str):
            prompt: str | tuple[Mapping[str, Any], ...] = task.prompt.translate(self.table)
        else:
            prompt = tuple({**message, "content": self._said(message["content"])} for message in task.prompt)
        texts = {which: str(task.given[which]).translate(self.table) for which in ("demo", "mistake")}
        return replace(task, prompt=prompt, given={**task.given, **texts})

    def _said(self, content: object) -> object:
        return content.translate(self.table) if isinstance(content, str) else content


@dataclass(frozen=True)
class Understood:
    """The scoring of a dialect: replies are read back first."""

    scoring: Scoring
    table: Mapping[int, str]

    @property
    def eager(self) -> EagerScoring | None:
        inner = self.scoring.eager
        return None if inner is None else _Eager(inner, self.table)

    def require_verifier(self, split: str) -> None:
        self.scoring.require_verifier(split)

    def verdicts(self, tasks: list[Task], replies: list[str]) -> Sequence[Verdict]:
        return self.scoring.verdicts(tasks, [reply.translate(self.table) for reply in replies])


@dataclass(frozen=True)
class _Eager:
    eager: EagerScoring
    table: Mapping[int, str]

    def begin(self, tasks: list[Task], replies: list[str]) -> Future[list[object]]:
        return self.eager.begin(tasks, [reply.translate(self.table) for reply in replies])

    def heard(self, results: list[object]) -> list[Verdict]:
        return self.eager.heard(results)
