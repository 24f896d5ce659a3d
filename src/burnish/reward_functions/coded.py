"""A reward of programs by name: each reply is run against the tests of its row, and the outcome gets a value."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from burnish.core.call_syntax import Call, bound
from burnish.core.task import Verdict
from burnish.reward_functions.call import Columns
from burnish.reward_functions.reward import Answer, Failed, Found, OneReward, combined
from burnish.reward_functions.sandboxed import row_of
from burnish.sandbox.code.limits import SECONDS
from burnish.verifiers.code.canary import contradicting
from burnish.verifiers.code.grader import CodeGrader, Problem, code_grader
from burnish.verifiers.code.outcome import Outcome, verdict_of
from burnish.verifiers.code.tests import read_tests
from burnish.verifiers.table import Value, build_check, load_verifiers


class CodeReward(OneReward):
    """The value of each reply's outcome (verifiers/programs.py). A run has `seconds`."""

    def __init__(self, call: Call, seconds: float | None = None, name: str | None = None) -> None:
        entry = load_verifiers()[call.name]
        given = bound(call, entry.build)
        for name_of, parameter in inspect.signature(entry.build).parameters.items():
            if isinstance(parameter.default, bool) and not isinstance(given.get(name_of, False), bool):
                raise ValueError(f"{call.name}: {name_of} is True or False, not {given[name_of]!r}")
        self.value: Value = build_check(call)
        self.isolated = not given.get("unsafe_code", False)
        self.call, self.seconds, self.name = call, SECONDS if seconds is None else seconds, name or call.name

    @property
    def grader(self) -> CodeGrader:
        return code_grader(isolated=self.isolated)

    def another(self) -> CodeReward:
        return self  # its boxes serve all threads

    def answers(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> list[Answer]:
        rows = [row_of(prompt, columns, i) for i, prompt in enumerate(prompts)]
        problems = [self._problem(row) for row in rows]
        outcomes = self.grader.outcomes(problems, replies, self.seconds)
        return [self._answer(row, outcome) for row, outcome in zip(rows, outcomes, strict=True)]

    def _problem(self, row: dict[str, object]) -> Problem:
        prompt = str(row["prompt"])
        tests = read_tests(row, prompt, f"the row with the prompt {prompt[:60]!r}")
        if tests is None:
            raise ValueError(
                f"the reward {self.name!r} needs tests, which a row does not have: test_list, test and entry_point, "
                "inputs and outputs, or calls; name them with --columns, or choose another reward"
            )
        return Problem(contradicting(tests), canary=True) if row.get("canary") else Problem(tests)

    def _answer(self, row: dict[str, object], outcome: Outcome) -> Answer:
        if outcome.failed:
            return Failed(outcome.reason)
        if outcome.canary:
            return verdict_of(outcome)  # 0 for all, so that nothing is learned from impossible tests
        return Verdict(self.value(row, outcome), outcome.correct, outcome.reason)

    def ask(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> Found:
        return [combined({self.name: (1.0, answer)}) for answer in self.answers(prompts, replies, columns)]

    def scores(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> list[float | None]:
        """Not used: `answers` has verdicts with their reasons."""
        raise NotImplementedError
