"""The problems of the whole steps: the same prompts and the same reward function for every side."""

from __future__ import annotations

from typing import Any

from workload import text

from burnish.core.types import Task, Verdict
from burnish.tasks.resolve import resolve_task
from burnish.tasks.source import Source


class Few:
    """A fixed number of problems, so that every step of every side works on the same ones."""

    gives = frozenset({"answer"})

    def __init__(self, name: str, tasks: list[Task], judge: Source | None = None) -> None:
        self.name, self.tasks, self.judge = name, tasks, judge
        self.summary = f"{len(tasks)} problems of {name}"

    def size(self, split: str) -> int:
        return len(self.tasks)

    def task(self, split: str, index: int) -> Task:
        return self.tasks[index]

    def verify(self, task: Task, reply: str) -> Verdict:
        """The task's own verdict; for words without meaning, whether the sum of the letters is even."""
        if self.judge is not None:
            return self.judge.verify(task, reply)
        even = sum(reply.encode()) % 2 == 0
        return Verdict(float(even), even)


def source_of(work: dict[str, Any]) -> Few:
    """The problems that the work names: "words", or the first ones of a task that `burnish train` knows."""
    if work.get("task", "words") == "words":
        tasks = [Task("question", text(ids), {"answer": ""}, f"words-{i}") for i, ids in enumerate(work["prompts"])]
        return Few("words", tasks)
    known = resolve_task(work["task"])
    return Few(known.name, [known.task("train", i) for i in range(work["prompts_a_step"])], known)
