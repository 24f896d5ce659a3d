"""Tasks of an environment with an episode that someone recorded of each: `burnish train eef --expert games.jsonl`.

A row has `messages`, a conversation as in tasks/data/episodes.py, and `task`, the number of its task among the training
tasks of the source. Without `task` it belongs to the task with the same prompt, where a source has finitely many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from burnish.core.messages import Message, text_of
from burnish.core.task import Task, Verdict
from burnish.tasks.data.files import read_file, reader_of
from burnish.tasks.data.messages import conversation
from burnish.tasks.source import SameTasks, Source

RECORDED = "recorded"  # in Task.given: the messages of the recorded episode


def is_file_of_episodes(name: str) -> bool:
    """Whether a name is that of a file with rows, by its ending."""
    return reader_of(Path(name).name) is not None


class Recorded(SameTasks):
    """The training tasks of which a file has an episode, each with it in given["recorded"]; held-out tasks as they are.

    Several rows may have the same task: each is a task of its own then.
    """

    eager = None

    def __init__(self, source: Source, file: str) -> None:
        if "env" not in source.gives:
            raise ValueError(f"task {source.name!r} has no environment to play an episode of {file} again in")
        super().__init__(source)
        if not Path(file).is_file():
            raise ValueError(f"there is no file {file} with recorded episodes; write one row per episode into it")
        self.file, self.gives = file, source.gives | {RECORDED}
        self.rows = [self._row(row, f"{file}, row {i}") for i, row in enumerate(read_file(Path(file)), 1)]
        if not self.rows:
            raise ValueError(f"{file} has no episodes; write one row per episode into it")

    def size(self, split: str) -> int | None:
        return len(self.rows) if split == "train" else self.source.size(split)

    def task(self, split: str, index: int) -> Task:
        if split != "train":
            return self.source.task(split, index)
        number, messages = self.rows[index]
        found = self.source.task("train", number)
        key = f"{found.key} | row {index}"  # two rows of one task are two tasks, which sample apart
        return replace(found, given={**found.given, RECORDED: messages}, key=key)

    def require_verifier(self, split: str) -> None:
        """The environment rewards."""

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        return [self.verify(task, reply) for task, reply in zip(tasks, replies, strict=True)]

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.source.verify(task, reply)

    def _row(self, row: Any, where: str) -> tuple[int, tuple[Message, ...]]:
        messages = conversation(row.get("messages"), where) if isinstance(row, Mapping) else None
        if not messages or not any(message["role"] == "assistant" for message in messages):
            raise ValueError(f"{where}: has no 'messages' with a reply of the assistant; an episode is a conversation")
        number, size = row.get("task"), self.source.size("train")
        if number is None:
            return self._of_prompt(messages, where), messages
        if (
            not isinstance(number, int)
            or isinstance(number, bool)
            or number < 0
            or (size is not None and number >= size)
        ):
            among = "a whole number from 0" if size is None else f"a whole number from 0 to {size - 1}"
            raise ValueError(f"{where}: 'task' is {number!r}; it is the number of a training task, {among}")
        return number, messages

    def _of_prompt(self, messages: tuple[Message, ...], where: str) -> int:
        """The number of the task with the same prompt."""
        found = self._numbers.get(_opening(messages), [])
        if len(found) != 1:
            many = "more than one training task has" if found else "no training task is known with"
            raise ValueError(f"{where}: {many} its prompt; give the row 'task', the number of its task")
        return found[0]

    @cached_property
    def _numbers(self) -> dict[str, list[int]]:
        """The numbers of the training tasks by prompt; none where there are endless tasks."""
        found: dict[str, list[int]] = {}
        for number in range(self.source.size("train") or 0):
            prompt = self.source.task("train", number).prompt
            asked = ({"role": "user", "content": prompt},) if isinstance(prompt, str) else prompt
            found.setdefault(_opening(asked), []).append(number)
        return found


def _opening(messages: tuple[Message, ...]) -> str:
    """What stands before the first reply."""
    first = next((i for i, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    return "\n".join(f"{message['role']}: {text_of(message)}" for message in messages[:first])
