"""Grading of batches of replies: one zygote per core, started when they are first needed and kept."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from burnish.sandbox.code.box import Box
from burnish.sandbox.code.limits import Limits
from burnish.sandbox.code.pool import Boxes
from burnish.verifiers.code.grade import grade
from burnish.verifiers.code.outcome import Class, Outcome
from burnish.verifiers.code.tests import Tests

MOST_BOXES = 16


@dataclass(frozen=True)
class Problem:
    """The tests of a problem. canary: they contradict each other, so that no program can pass them."""

    tests: Tests
    canary: bool = False


class CodeGrader:
    """Runs programs in boxes, several at a time. Thread-safe.

    isolated: refuse to run programs without isolation (box.NotIsolated); False runs them with whatever the machine has
    """

    def __init__(self, limits: Limits | None = None, *, workers: int | None = None, isolated: bool = True) -> None:
        self.limits = limits or Limits()
        self.workers = workers or min(os.cpu_count() or 1, MOST_BOXES)
        self.isolated = isolated
        self._boxes = Boxes(lambda: Box(self.limits, isolated=self.isolated), self.workers)
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="burnish-code")
        self._warned = False

    @contextlib.contextmanager
    def box(self) -> Iterator[Box]:
        """A zygote that is ready; raises NotIsolated on a machine that cannot isolate."""
        with self._boxes.lent() as box:
            box.ready()
            yield box

    def prepare(self) -> None:
        """Start a zygote and wait until it is ready."""
        with self.box() as box:
            if box.lacking and not self._warned:
                self._warned = True
                warnings.warn(f"model-written code runs without isolation: {box.lacking}", RuntimeWarning, stacklevel=2)

    @property
    def isolation(self) -> dict[str, str]:
        """Measure -> "yes: detail" or "no: reason"."""
        with self.box() as box:
            return dict(box.isolation)

    def outcomes(
        self, problems: Sequence[Problem], replies: Sequence[str], seconds: float | None = None
    ) -> list[Outcome]:
        """An outcome for each reply, by the tests of its problem."""
        limits = self.limits if seconds is None else self.limits.within(seconds)
        work = [
            self._threads.submit(self._one, problem, reply, limits)
            for problem, reply in zip(problems, replies, strict=True)
        ]
        return [one.result() for one in work]

    def end(self) -> None:
        """End all zygotes, with everything that they started."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._boxes.end()

    def _one(self, problem: Problem, reply: str, limits: Limits) -> Outcome:
        for _ in range(2):  # a zygote that died may have been killed by something else
            with self._boxes.lent() as box:
                try:
                    outcome = grade(box, problem.tests, reply, limits)
                except (OSError, EOFError):
                    box.end()
            if not box.ended:
                return replace(outcome, canary=problem.canary)
        why = "the process that runs code died on this reply"
        return Outcome(Class.RUNTIME, 0, 0, why, failed=True, canary=problem.canary)


_OF_THIS_PROCESS: dict[tuple[int, bool], CodeGrader] = {}


def code_grader(*, isolated: bool = True) -> CodeGrader:
    """This process's grader. A forked child gets its own."""
    return _OF_THIS_PROCESS.setdefault((os.getpid(), isolated), CodeGrader(isolated=isolated))
