"""The tasks of a source whose other seats are played by models of the run: `--opponent snapshot`."""

from __future__ import annotations

from collections.abc import Sequence

from burnish.core.task import Task, Verdict
from burnish.envs.protocol import offers
from burnish.tasks.batched import batched
from burnish.tasks.source import EagerScoring, SameTasks, Source

OPPONENT = "opponent_model"  # in Task.given: the model that plays the seats besides the policy's


class Seated(SameTasks):
    """Each task names the model that has the seats besides the policy's: one in training, one in evaluation."""

    def __init__(self, source: Source, train: str, heldout: str) -> None:
        inner = batched(source)
        super().__init__(inner, inner.drop_failed)
        self._inner, self.models = inner, {"train": train, "heldout": heldout}
        if "env" not in source.gives or not offers(source.task("train", 0).given["env"](), "seat"):
            raise ValueError(
                f"task {source.name!r} has no environment of several players, so there is no seat for --opponent; "
                "use nim, deal or twenty_questions, or an environment with seat() (docs/environments.md)"
            )

    @property
    def eager(self) -> EagerScoring | None:
        return None

    def task(self, split: str, index: int) -> Task:
        found = self.source.task(split, index)
        return Task(found.kind, found.prompt, {**found.given, OPPONENT: self.models[split]}, found.key)

    def require_verifier(self, split: str) -> None:
        self._inner.require_verifier(split)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]

    def verdicts(self, tasks: list[Task], replies: list[str]) -> Sequence[Verdict]:
        return self._inner.verdicts(tasks, replies)
