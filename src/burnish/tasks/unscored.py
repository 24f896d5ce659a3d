"""A source whose replies get their reward from scorers of the run alone."""

from __future__ import annotations

from dataclasses import replace

from burnish.core.task import MADE_FROM, Task, Verdict
from burnish.tasks.batched import batched
from burnish.tasks.source import NoVerifier, SameTasks


class Unscored(SameTasks):
    """The tasks of a source with a reward of 0 for every reply, to which scorers add theirs.

    Where the source has a verifier, a reply counts as correct by it; so accuracies can still be measured. It cannot
    know the answers to prompts that the run made.
    """

    @property
    def eager(self) -> None:
        return None

    def require_verifier(self, split: str) -> None:
        """Training needs none: scorers score. Held-out replies are judged by the source's own."""
        if split != "train":
            batched(self.source).require_verifier(split)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        found = [Verdict(0.0, False) for _ in replies]
        known = [i for i, task in enumerate(tasks) if MADE_FROM not in task.given]
        try:
            own = batched(self.source).verdicts([tasks[i] for i in known], [replies[i] for i in known])
        except NoVerifier:
            return found
        for i, verdict in zip(known, own, strict=True):
            found[i] = replace(verdict, score=0.0, failed=False)
        return found
