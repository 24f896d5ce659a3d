"""Any source as one that scores batches."""

from __future__ import annotations

from burnish.core.task import Task, Verdict
from burnish.tasks.limited import Limited, sandboxed
from burnish.tasks.source import BatchSource, NoVerifier, SameTasks, Source
from burnish.util.failures import said


def batched(source: Source) -> BatchSource:
    """The source itself if it scores batches; else one of burnish's verifiers runs in the sandbox, with limits, and a
    verifier of the user's (a Python object) scores one reply at a time in this process."""
    if isinstance(source, BatchSource):
        return source
    return OneByOne(source) if sandboxed(source) is None else Limited(source)


class OneByOne(SameTasks):
    """A source whose `verify` is called for each reply. If it raises, the reply scores 0 and the verdict says why."""

    @property
    def eager(self) -> None:
        return None

    def require_verifier(self, split: str) -> None:
        self.verify(self.source.task(split, 0), "")

    def verify(self, task: Task, reply: str) -> Verdict:
        try:
            return self.source.verify(task, reply)
        except NoVerifier:
            raise  # the user can fix this: a dataset without answers
        except KeyboardInterrupt:
            raise  # Ctrl-C
        except BaseException as error:
            return Verdict(0.0, False, f"the verifier of {self.name!r} raised {type(error).__name__}: {said(error)}")

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        return [self.verify(task, reply) for task, reply in zip(tasks, replies, strict=True)]
