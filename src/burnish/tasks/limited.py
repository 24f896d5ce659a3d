"""Verification in the sandbox, and a source with a time limit for its verifier."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from burnish.core.task import Task, Verdict
from burnish.tasks.source import SameTasks, Source
from burnish.verifiers.code.verifier import CodeVerifier
from burnish.verifiers.verifier import SECONDS, Verifier, verifier


@runtime_checkable
class Sandboxed(Source, Protocol):
    """A source whose verifier can be rebuilt in another process."""

    def scorer(self) -> dict[str, Any]: ...

    def facts(self, task: Task) -> Any: ...


def sandboxed(source: Source) -> Sandboxed | None:
    """The source, if its verifier runs in the sandbox (burnish's own do), else None (a class of the user's)."""
    inner = source.source if isinstance(source, Limited) else source
    return inner if type(inner).__module__.startswith("burnish.") and isinstance(inner, Sandboxed) else None


def _verifier(spec: dict[str, Any]) -> Verifier | CodeVerifier:
    """Programs run in processes of their own, everything else is judged in the verifier process of its kind."""
    return CodeVerifier() if spec["kind"] == "code" else verifier(spec["kind"])


def begin_sandbox(source: Sandboxed) -> None:
    """Start the verifier process of this source, without waiting for it."""
    spec = source.scorer()
    _verifier(spec).prepare(spec)


def judge_in_sandbox(
    source: Sandboxed, tasks: list[Task], replies: list[str], seconds: float = SECONDS
) -> list[Verdict]:
    """A verdict for each reply, from the sandbox, with at most `seconds` for each."""
    facts = {id(task): source.facts(task) for task in tasks}
    spec = source.scorer()
    return _verifier(spec).judge(spec, [facts[id(task)] for task in tasks], replies, seconds)


class Limited(SameTasks):
    """A source whose verifier has a time limit of `seconds` per reply.

    drop_failed: replies without a verdict are removed from the batch, instead of scored 0
    """

    def __init__(self, source: Source, seconds: float = SECONDS, *, drop_failed: bool = False) -> None:
        if seconds <= 0:
            raise ValueError(f"a time limit of {seconds:g} s is too short for any verifier; pass --reward-timeout 10")
        super().__init__(source, drop_failed)
        inner = sandboxed(source)
        if inner is None:
            raise ValueError(
                f"the verifier of {source.name!r} is a Python object in this process, which cannot be stopped; leave "
                "out --reward-timeout, or use --reward file.py:function"
            )
        self.seconds, self._inner = seconds, inner

    @property
    def eager(self) -> None:
        return None

    def require_verifier(self, split: str) -> None:
        self._inner.facts(self._inner.task(split, 0))
        begin_sandbox(self._inner)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        return judge_in_sandbox(self._inner, tasks, replies, self.seconds)
