"""What rewards from judges share: the texts of a batch, the gate before the judge, and how results are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from burnish.core.messages import prompt_shown
from burnish.core.scorer import MEASURED, mark_failed
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.judges.master_keys import is_master_key
from burnish.score.judge import reply_text
from burnish.score.judges.judge import Answer


@dataclass(frozen=True)
class Item:
    """A reply that is to be judged. empty: it is a master key, which scores the lowest without a question."""

    group: Group
    trace: Trace
    prompt: str
    reply: str
    empty: bool

    @property
    def task(self) -> Task:
        return self.group.task


def items_of(groups: Sequence[Group], step: Step, reader: str = "policy") -> list[Item]:
    """Every reply of the groups as text; notes the share that has no content (judge_gated)."""
    chat = step.models[reader].chat
    found = []
    for group in groups:
        prompt = prompt_shown(group.task.prompt)
        for trace in group.traces:
            reply = reply_text(trace, chat)
            found.append(Item(group, trace, prompt, reply, is_master_key(reply)))
    if found:
        step.notes.add("judge_gated", sum(item.empty for item in found), len(found))
    return found


def by_group(items: Sequence[Item]) -> list[list[Item]]:
    """The items of each group."""
    found: dict[int, list[Item]] = {}
    for item in items:
        found.setdefault(id(item.group), []).append(item)
    return list(found.values())


@dataclass(frozen=True)
class Writer:
    """Writes scores["reward/NAME"]. unparsed: the score where no answer could be read; None: the reply has failed."""

    name: str
    unparsed: float | None = None

    def write(self, item: Item, value: float | None, why: str) -> None:
        """A number, the configured number for an unread answer, or a failure with its reason."""
        if value is None:
            value = self.unparsed
        if value is None:
            mark_failed(item.trace, f"{self.name}: {why}")
        else:
            item.trace.scores[f"{MEASURED}{self.name}"] = float(value)

    @property
    def writes(self) -> frozenset[str]:
        return frozenset({f"score:{MEASURED}{self.name}"})


def note_unread(step: Step, unread: int, answers: int) -> None:
    """Note the share of answers that could not be read, or did not come (judge_unread)."""
    if answers:
        step.notes.add("judge_unread", unread, answers)


def reason(answers: Sequence[Answer]) -> str:
    """Why no answer could be read: the first failure, or the end of the first answer."""
    for answer in answers:
        if answer.failed:
            return answer.why
    return f"the judge's answer could not be read: ...{answers[0].text[-80:]!r}" if answers else "no judge was asked"
