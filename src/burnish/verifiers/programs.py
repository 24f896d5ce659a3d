"""Rewards of programs, from the outcome of their tests (verifiers/code/outcome.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from burnish.core.option import Option
from burnish.papers import rewards as papers
from burnish.papers.pipelines import MIMO
from burnish.verifiers.code.outcome import Class, Outcome
from burnish.verifiers.table import Row, Value, program_reward

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
        return rltf_value(outcome, adaptive) - (_number(row, baseline) if baseline else 0.0)

    return value


def _number(row: Row, name: str) -> float:
    value = row[name]
    if not isinstance(value, int | float | str):
        raise ValueError(f"the column {name!r} of a row is {value!r:.60}; it must be a number")
    return float(value)


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

    The tests of a question are those that a reference solution passes; `burnish tests --rule acecoder --writer JUDGE`
    has a model write them, drops the others, and questions with fewer than five. Pairs for a reward model come from the
    shares of several samples: `burnish pairs --reward "acecoder(share=True)" --rule acecoder` (chosen at least 0.8, gap
    at least 0.4, rejected above 0), then `burnish train reward_model`. The questions are those of the data: the paper
    has a model write them, too. The reward is that of `hardtests`: the papers differ in how tests are made.
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
    aimed at wrong or slow programs, filtered by a validator; --writer JUDGE has a model write all of them. An
    output counts when at least two right programs agree on it; the paper's right programs come with the data, too.
    It measures precision and recall of the verdict against programs whose truth is known.
    """

    def value(row: Row, outcome: Outcome) -> float:
        return float(outcome.correct)

    return value


@program_reward(
    MIMO,
    summary="Points for each level of difficulty of the tests that a program passes, as in an olympiad.",
    when="Problems are so hard that few programs pass all tests, and the tests differ in difficulty.",
)
def levelled_tests(
    *,
    strict: Annotated[bool, Option("A level counts only with all its tests and those of easier levels.")] = True,
    levels: Annotated[int, Option("Levels that pass rates are divided into.", at_least=1)] = 3,
    unsafe_code: Unsafe = False,
) -> Value:
    """The test difficulty driven reward of MiMo (arXiv 2505.07608, section 3.3.1).

    Of L levels each is worth 1/L.  strict: the sum over the levels whose tests, and those of all easier levels, are all
    passed.  Not strict: each level's points are divided equally among its tests, and passed tests earn theirs.

    A row says the level of each test in test_levels (0 is the easiest), or its pass rate p in test_rates, of which the
    level is floor((1 - p) levels), at most levels - 1. The paper clusters pass rates of several models' programs, and
    prints neither the clusters nor the points. One level, strict: 1 if all tests pass, else 0.
    """

    def value(row: Row, outcome: Outcome) -> float:
        # a program that ended early, or did not compile, does not say how many tests the row has
        tests = outcome.total if outcome.kind in (Class.PASSED, Class.WRONG) else 0
        return level_points(levels_of(row, levels, tests), outcome.marks, strict)

    return value


def levels_of(row: Row, levels: int, total: int) -> list[int]:
    """The level of each test of a row."""
    given = row.get("test_levels")
    rates = row.get("test_rates")
    if given is None and isinstance(rates, Sequence):
        given = [min(levels - 1, int((1 - float(rate)) * levels)) for rate in rates]
    if not isinstance(given, Sequence):
        raise ValueError("levelled_tests needs a column test_levels or test_rates, with a number for each test")
    if total and len(given) != total:
        raise ValueError(f"levelled_tests: the row has {total} tests and {len(given)} levels; give one for each test")
    return [int(level) for level in given]


def level_points(levels: list[int], marks: tuple[bool, ...], strict: bool) -> float:
    """The points of a program that passed the tests that `marks` says; tests that were not run are not passed."""
    passed = [i < len(marks) and marks[i] for i in range(len(levels))]
    names = sorted(set(levels))
    points = 0.0
    for name in names:
        marks_here = [mark for mark, level in zip(passed, levels, strict=True) if level == name]
        if strict and not all(marks_here):
            break
        points += sum(marks_here) / len(marks_here) / len(names)
    return points
