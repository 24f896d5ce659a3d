"""What scores the replies to tasks: a verifier in the sandbox or in this process, a reward function, or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from burnish.core.task import MADE_FROM, NoVerifier, Task, Verdict
from burnish.reward_functions.grader_pool import Graders
from burnish.reward_functions.reward import Found, Reward
from burnish.tasks.source import EagerScoring, Scoring, Source
from burnish.util.failures import said
from burnish.verifiers.code.verifier import CodeVerifier
from burnish.verifiers.verifier import SECONDS, Verifier, verifier


@runtime_checkable
class Sandboxed(Source, Protocol):
    """A source whose verifier can be rebuilt in another process."""

    def scorer(self) -> dict[str, Any]: ...

    def facts(self, task: Task) -> Any: ...


def is_sandboxed(source: Source) -> bool:
    """Whether its verifier runs in the sandbox: burnish's own do, a class of the user's does not."""
    return type(source).__module__.startswith("burnish.") and isinstance(source, Sandboxed)


def scoring_of(source: Source) -> Scoring:
    """How the replies to a source are scored, if the run does not say otherwise."""
    if isinstance(source, Scoring):
        return source
    if is_sandboxed(source):
        assert isinstance(source, Sandboxed)
        return SandboxScoring(source)
    return ObjectScoring(source)


@dataclass(frozen=True)
class SandboxScoring:
    """The verifier of a source of burnish's own, in the sandbox, with at most `seconds` for each reply."""

    source: Sandboxed
    seconds: float = SECONDS
    eager: None = None

    def begin_process(self) -> None:
        """Start the verifier process, without waiting for it."""
        spec = self.source.scorer()
        _verifier(spec).prepare(spec)

    def require_verifier(self, split: str) -> None:
        self.source.facts(self.source.task(split, 0))
        self.begin_process()

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        facts = {id(task): self.source.facts(task) for task in tasks}
        spec = self.source.scorer()
        return _verifier(spec).judge(spec, [facts[id(task)] for task in tasks], replies, self.seconds)


def _verifier(spec: dict[str, Any]) -> Verifier | CodeVerifier:
    """Programs run in processes of their own, everything else is judged in the verifier process of its kind."""
    return CodeVerifier() if spec["kind"] == "code" else verifier(spec["kind"])


@dataclass(frozen=True)
class ObjectScoring:
    """A Python object of the user's, whose `verify` is called for each reply in this process.

    If it raises, the reply scores 0 and the verdict says why.
    """

    source: Source
    eager: None = None

    def require_verifier(self, split: str) -> None:
        self._verdict(self.source.task(split, 0), "")

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        return [self._verdict(task, reply) for task, reply in zip(tasks, replies, strict=True)]

    def _verdict(self, task: Task, reply: str) -> Verdict:
        try:
            return self.source.verify(task, reply)
        except NoVerifier:
            raise  # the user can fix this: a dataset without answers
        except KeyboardInterrupt:
            raise  # Ctrl-C
        except BaseException as error:
            why = f"the verifier of {self.source.name!r} raised {type(error).__name__}: {said(error)}"
            return Verdict(0.0, False, why)


class FunctionScoring:
    """A reward function (reward_functions/call.py) or several with weights, in place of the verifier.

    A score above 0.5 counts as correct; of several rewards, one above half of the sum of their positive weights.

    workers  concurrent calls of the function during sampling, each in its own process if there is a time limit;
             0: one call a step, after sampling
    """

    def __init__(self, reward: Reward, workers: int = 0) -> None:
        self.reward = reward
        calls = [reward.ask, *(reward.another().ask for _ in range(workers - 1))]
        self.graders = Graders(calls) if workers else None

    @property
    def eager(self) -> EagerScoring | None:
        return self if self.graders is not None else None

    def require_verifier(self, split: str) -> None:
        """A reward function can score any reply."""

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        """Score a whole batch in one call."""
        results = (
            self.reward.ask(*_arguments(tasks, replies))
            if self.graders is None
            else self.begin(tasks, replies).result()
        )
        return self.heard(results)

    def begin(self, tasks: list[Task], replies: list[str]) -> Future[Found]:
        """Start scoring replies in one call of a worker. Pass the results of the whole batch to `heard`."""
        assert self.graders is not None
        return self.graders.begin(*_arguments(tasks, replies))

    def heard(self, results: Found) -> list[Verdict]:
        """The verdicts of a whole batch, from the results of its calls."""
        return self.reward.heard(results)


def _arguments(
    tasks: list[Task], replies: list[str]
) -> tuple[Sequence[Any], Sequence[str], Mapping[str, Sequence[Any]]]:
    columns = {
        name: [task.given.get(name) for task in tasks] for name in sorted({key for task in tasks for key in task.given})
    }
    prompts = [task.prompt if isinstance(task.prompt, str) else list(task.prompt) for task in tasks]
    return prompts, replies, columns


@dataclass(frozen=True)
class ZeroScoring:
    """A reward of 0 for every reply, to which the scorers of the run add theirs.

    Where there is a verifier, a reply counts as correct by it; so accuracies can still be measured. It cannot know the
    answers to prompts that the run made.
    """

    verifier: Scoring
    eager: None = None

    def require_verifier(self, split: str) -> None:
        """Training needs none: scorers score. Held-out replies are judged by the source's own."""
        if split != "train":
            self.verifier.require_verifier(split)

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        verdicts = [Verdict(0.0, False) for _ in replies]
        known = [i for i, task in enumerate(tasks) if MADE_FROM not in task.given]
        try:
            judged = self.verifier.verdicts([tasks[i] for i in known], [replies[i] for i in known])
        except NoVerifier:
            return verdicts
        for i, verdict in zip(known, judged, strict=True):
            verdicts[i] = replace(verdict, score=0.0, failed=False)
        return verdicts
