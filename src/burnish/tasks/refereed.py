"""Tasks of three kinds from one source, for a model that is player and referee (URPO)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from burnish.core.seeds import key_of
from burnish.core.task import Task, Verdict
from burnish.judges.question import Template
from burnish.tasks.batched import batched
from burnish.tasks.judged import RankedReplies, has_preferences
from burnish.tasks.source import NoVerifier, SameTasks, Source

KIND = "urpo_kind"
VERIFIED, REFEREE, OPEN = "verified", "referee", "open"


class Refereed(SameTasks):
    """Each row becomes one kind of task, by a hash of its key and the shares, among the kinds that it can be:

    verified  the row has an answer: the source's verifier scores the reply
    referee   the row has preferences: the model scores the replies of the row; reward = rank agreement
    open      any row: the policy's own scores of the replies are the reward, which `self_scores` writes
    """

    eager = None

    def __init__(self, source: Source, template: Template, shares: dict[str, float]) -> None:
        super().__init__(source)
        self.shares = shares
        self.referee = RankedReplies(source, template) if has_preferences(source) else None
        self.gives = source.gives | {KIND}

    def task(self, split: str, index: int) -> Task:
        row = self.source.task(split, index)
        kind = self.kind(row)
        made = self.referee.question_about(row) if kind == REFEREE and self.referee is not None else row
        return replace(made, given={**made.given, KIND: kind})

    def kind(self, row: Task) -> str:
        """The kind of a row's task."""
        able = {VERIFIED: row.given.get("answer") is not None, REFEREE: self.referee is not None, OPEN: True}
        weights = {kind: share for kind, share in self.shares.items() if able[kind] and share > 0}
        if not weights:
            return VERIFIED if able[VERIFIED] else OPEN
        at = (key_of("urpo", row.key) % 2**32) / 2**32 * sum(weights.values())
        for kind, share in weights.items():
            at -= share
            if at < 0:
                return kind
        return next(reversed(weights))

    def require_verifier(self, split: str) -> None:
        """Held-out replies are judged by the source's own verifier; training needs none for every kind."""
        if split != "train":
            batched(self.source).require_verifier(split)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]

    def verdicts(self, tasks: list[Task], replies: list[str]) -> Sequence[Verdict]:
        """Verified tasks by the source, referee tasks by rank agreement; 0 for open ones."""
        found: dict[int, Verdict] = {i: Verdict(0.0, False) for i in range(len(tasks))}
        for kind, judge in ((VERIFIED, batched(self.source)), (REFEREE, self.referee)):
            own = [i for i, task in enumerate(tasks) if task.given.get(KIND) == kind]
            if own and judge is not None:
                try:
                    verdicts = judge.verdicts([tasks[i] for i in own], [replies[i] for i in own])
                except NoVerifier:
                    continue
                found |= dict(zip(own, verdicts, strict=True))
        return [found[i] for i in range(len(tasks))]
