"""Rewards of programs, from the outcome of their tests (rewards/code/outcome.py)."""

from __future__ import annotations

from typing import Annotated

from burnish.option import Option
from burnish.papers import rewards as papers
from burnish.rewards.code.outcome import Class, Outcome
from burnish.rewards.verifiers.table import Row, Value, program_reward

Unsafe = Annotated[bool, Option("Run programs even where the machine cannot isolate them.")]

RLTF_CLASSES = {
    Class.PASSED: 1.0,
    Class.WRONG: -0.3,
    Class.RUNTIME: -0.6,
    Class.TIMEOUT: -0.6,
    Class.SYNTAX: -1.0,
    Class.NO_CODE: -1.0,
}


@program_reward(
    papers.RLTF,
    summary="A value for each class of outcome: 1 pass, -0.3 wrong, -0.6 runtime error, -1 syntax error.",
    when="Most programs fail, and failing later is better than failing earlier.",
)
def rltf(
    *,
    adaptive: Annotated[bool, Option("Wrong answers earn the share of tests passed.")] = True,
    baseline: Annotated[str, Option("A column with the reward of a baseline solution, which is subtracted.")] = "",
    unsafe_code: Unsafe = False,
) -> Value:
    """R by class: syntax error or no code -1, runtime error or time-out -0.6, wrong answer -0.3, pass 1.

    adaptive: a wrong answer gets -0.3 + 1.3 x (tests passed / tests); without it R is the coarse reward, as in CodeRL.
    baseline: R - b, where b is the reward of a stored (greedy) solution of the same problem. The paper's third,
    fine-grained part is the reward `rltf_lines`. Departure: a time-out, which the paper does not name, counts as a
    runtime error.
    """

    def value(row: Row, outcome: Outcome) -> float:
        return rltf_value(outcome, adaptive) - (float(row[baseline]) if baseline else 0.0)

    return value


def rltf_value(outcome: Outcome, adaptive: bool) -> float:
    """R of RLTF (arXiv 2307.04349), without the baseline."""
    if adaptive and outcome.kind is Class.WRONG:
        return -0.3 + 1.3 * outcome.share
    return RLTF_CLASSES[outcome.kind]


@program_reward(
    papers.ACECODER,
    summary="1 where a program passes all tests, else 0; or the share that it passes.",
    when="Tests were written by a model and filtered by a reference solution (burnish tests).",
)
def acecoder(
    *,
    share: Annotated[bool, Option("The share of tests passed, for choosing pairs.")] = False,
    unsafe_code: Unsafe = False,
) -> Value:
    """R = 1 if all tests pass, else 0 (the reward of AceCoder's RL); share: tests passed / tests.

    The tests of a question are those that a reference solution passes; `burnish tests --rule acecoder` drops the
    others, and questions with fewer than five. Pairs for a reward model come from the shares of several samples:
    `burnish pairs --reward "acecoder(share=True)" --rule acecoder` (chosen at least 0.8, gap at least 0.4, rejected
    above 0), then `burnish train reward_model`.
    """

    def value(row: Row, outcome: Outcome) -> float:
        return outcome.share if share else float(outcome.correct)

    return value


@program_reward(
    papers.HARDTESTS,
    summary="1 where a program passes all synthesised tests, else 0.",
    when="Tests were made by generators and several right programs (burnish tests).",
)
def hardtests(*, unsafe_code: Unsafe = False) -> Value:
    """R = 1 if all tests pass, else 0.

    `burnish tests --rule hardtests` makes the tests: direct inputs, inputs of generator functions and of functions
    aimed at wrong or slow programs, filtered by a validator; an output counts when at least two right programs agree
    on it. It measures precision and recall of the verdict against programs whose truth is known.
    """

    def value(row: Row, outcome: Outcome) -> float:
        return float(outcome.correct)

    return value
