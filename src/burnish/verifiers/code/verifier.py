"""The verifier of tasks with tests of programs, as the other verifiers (verifiers/verifier.py) are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from burnish.core.task import Verdict
from burnish.verifiers.code.grader import CodeGrader, Problem, code_grader
from burnish.verifiers.code.outcome import verdict_of


class CodeVerifier:
    """Verdicts of replies by the tests of their problems. spec: {"kind": "code", "isolated": ...}."""

    def prepare(self, spec: Mapping[str, object]) -> None:
        """Start a process that runs programs; raises NotIsolated on a machine that cannot isolate them."""
        self.grader(spec).prepare()

    def judge(
        self, spec: Mapping[str, object], facts: Sequence[Problem], replies: Sequence[str], seconds: float
    ) -> list[Verdict]:
        """1 for a program that passes all tests, else 0."""
        return [verdict_of(outcome) for outcome in self.grader(spec).outcomes(facts, replies, seconds)]

    @staticmethod
    def grader(spec: Mapping[str, object]) -> CodeGrader:
        return code_grader(isolated=bool(spec["isolated"]))
