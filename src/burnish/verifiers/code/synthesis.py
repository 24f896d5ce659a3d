"""Making of tests for programming problems, and measuring of what they are worth.

HardTests (arXiv 2505.24098): inputs of three kinds are collected (written directly; from generator functions; from
functions aimed at slow or wrong programs), a validator filters them, and the output of an input is what at least two
right programs agree on. AceCoder (arXiv 2502.01718): tests that a reference solution fails are dropped.

Generators, validators and right programs come with the row: a language model or a person wrote them. They run in the
same boxes as the replies of a model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from burnish.sandbox.code.box import Box, Child
from burnish.sandbox.code.limits import Limits
from burnish.util.json_types import Json
from burnish.verifiers.code.grade import grade, reported
from burnish.verifiers.code.tests import Asserts, Calls, Scripts, Tests

DIRECT, PER_FUNCTION, ONE_FUNCTION = 10, 10, 20  # inputs of each kind, as in the paper
AGREE = 2  # right programs that must give the same output
MOST_ORACLES = 5
FEWEST = 5  # tests of a question that AceCoder keeps
_FUNCTION = re.compile(r"^def (\w+)\(\s*\)", re.MULTILINE)


@dataclass(frozen=True)
class Recipe:
    """What tests are made from.

    direct      inputs that were written directly
    generators  sources with functions without arguments, each of which returns an input
    hacks       the same, aimed at slow or wrong programs
    validator   a source with validate(input) -> bool; empty: all inputs are valid
    oracles     right programs
    judge       a source with judge(input, expected, printed) -> bool, where several outputs are right
    """

    direct: Sequence[str] = ()
    generators: Sequence[str] = ()
    hacks: Sequence[str] = ()
    validator: str = ""
    oracles: Sequence[str] = ()
    judge: str = ""


@dataclass
class Made:
    """Tests, and how many inputs were dropped for which reason."""

    cases: list[tuple[str, str]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)


def make_tests(box: Box, recipe: Recipe, limits: Limits, agree: int = AGREE) -> Made:
    """HardTests: inputs, validated, with the outputs on which at least `agree` of the right programs agree."""
    if not recipe.oracles:
        raise ValueError("there is no right program to say what the outputs are; add a column `oracles`")
    made = Made()
    inputs = _inputs(box, recipe, limits, made)
    valid = _validated(box, recipe.validator, [text for _, text in inputs], limits)
    for (kind, text), fits in zip(inputs, valid, strict=True):
        if not fits:
            made.dropped["invalid"] += 1
            continue
        outputs = _outputs(box, recipe.oracles[:MOST_ORACLES], text, limits)
        output = _judged(box, recipe.judge, text, outputs, agree, limits) if recipe.judge else agreed(outputs, agree)
        if output is None:
            made.dropped["no agreement"] += 1
        else:
            made.cases.append((text, output))
            made.kinds.append(kind)
    return made


def agreed(outputs: Iterable[str | None], agree: int = AGREE) -> str | None:
    """The output that most programs give, if at least `agree` of them do; a program that failed (None) has no vote."""
    votes = Counter(output for output in outputs if output is not None).most_common(2)
    if not votes or votes[0][1] < agree or (len(votes) == 2 and votes[1][1] == votes[0][1]):
        return None
    return votes[0][0]


def _judged(
    box: Box, judge: str, entered: str, outputs: Sequence[str | None], agree: int, limits: Limits
) -> str | None:
    """The first output, if the judge accepts those of at least `agree` programs beside it, itself included."""
    printed = [output for output in outputs if output is not None]
    if not printed:
        return None
    values = _values(box, judge, [["judge", [entered, printed[0], one], {}] for one in printed], limits)
    return printed[0] if sum(value is True for value in values) >= agree else None


def _inputs(box: Box, recipe: Recipe, limits: Limits, made: Made) -> list[tuple[str, str]]:
    """(kind, input) of all sources, without repetitions."""
    inputs = [("direct", text) for text in recipe.direct[:DIRECT]]
    for kind, sources in (("generated", recipe.generators), ("hack", recipe.hacks)):
        names = [(source, name) for source in sources for name in _FUNCTION.findall(source)]
        count = ONE_FUNCTION if kind == "generated" and len(names) == 1 else PER_FUNCTION
        for source, name in names:
            values = _values(box, source, [[name, [], {}]] * count, limits)
            texts = [value for value in values if isinstance(value, str)]
            made.dropped["generator failed"] += count - len(texts)
            inputs += [(kind, text) for text in texts]
    unique: dict[str, str] = {}
    for kind, text in inputs:
        unique.setdefault(text, kind)
    made.dropped["repeated"] += len(inputs) - len(unique)
    return [(kind, text) for text, kind in unique.items()]


def _validated(box: Box, validator: str, inputs: list[str], limits: Limits) -> list[bool]:
    if not validator:
        return [True] * len(inputs)
    values = _values(box, validator, [["validate", [text], {}] for text in inputs], limits)
    return [value is True for value in values]


def _values(box: Box, source: str, calls: list[list[object]], limits: Limits) -> list[Json]:
    """The encoded value of each call; None where it failed."""
    run = box.run([Child("calls", {"code": source, "calls": calls})], limits)
    lines = reported(run.children[0].report)[1:]
    values = [line.get("value") for line in lines]
    return [*values, *([None] * (len(calls) - len(values)))][: len(calls)]


def _outputs(box: Box, oracles: Sequence[str], entered: str, limits: Limits) -> list[str | None]:
    """What each right program prints for an input; None where it failed or took too long."""
    outputs: list[str | None] = []
    for code in oracles:
        run = box.run([Child("program", {"code": code}, entered)], limits)
        end = reported(run.children[0].report)[-1:]
        fine = not run.late and not run.much and bool(end) and end[0].get("ended") == 0
        outputs.append(run.children[0].printed.decode("utf-8", "replace").rstrip() + "\n" if fine else None)
    return outputs


def passed_by(box: Box, tests: Tests, reference: str, limits: Limits) -> Tests | None:
    """AceCoder: the tests that a reference solution passes; None if fewer than FEWEST are left."""
    passed = [one for one in single_tests(tests) if grade(box, one, _block(reference), limits).correct]
    if len(passed) < FEWEST:
        return None
    return joined_tests(tests, passed)


def single_tests(tests: Tests) -> list[Tests]:
    """Each test by itself."""
    if isinstance(tests, Calls):
        return [replace(tests, calls=(call,)) for call in tests.calls]
    if isinstance(tests, Scripts):
        return [replace(tests, cases=(case,)) for case in tests.cases]
    if isinstance(tests, Asserts):
        return [replace(tests, tests=(test,)) for test in tests.tests]
    return [tests]


def joined_tests(like: Tests, parts: Sequence[Tests]) -> Tests:
    """The tests of several parts together."""
    if isinstance(like, Calls):
        return replace(like, calls=tuple(call for part in parts if isinstance(part, Calls) for call in part.calls))
    if isinstance(like, Scripts):
        return replace(like, cases=tuple(case for part in parts if isinstance(part, Scripts) for case in part.cases))
    if isinstance(like, Asserts):
        return replace(like, tests=tuple(test for part in parts if isinstance(part, Asserts) for test in part.tests))
    return like


@dataclass
class Measured:
    """How the verdicts of tests agree with the truth about programs."""

    right_accepted: int = 0
    wrong_accepted: int = 0
    right_rejected: int = 0
    wrong_rejected: int = 0

    def add(self, right: bool, accepted: bool) -> None:
        name = f"{'right' if right else 'wrong'}_{'accepted' if accepted else 'rejected'}"
        setattr(self, name, getattr(self, name) + 1)

    @property
    def precision(self) -> float | None:
        """The share of the accepted programs that are right; None if none was accepted."""
        accepted = self.right_accepted + self.wrong_accepted
        return self.right_accepted / accepted if accepted else None

    @property
    def recall(self) -> float | None:
        """The share of the right programs that are accepted; None if there is none."""
        right = self.right_accepted + self.right_rejected
        return self.right_accepted / right if right else None


def measure(box: Box, tests: Tests, labelled: Iterable[tuple[str, bool]], limits: Limits, into: Measured) -> None:
    """Add the verdicts of these tests on programs whose truth is known."""
    for code, right in labelled:
        into.add(right, grade(box, tests, _block(code), limits).correct)


def _block(code: str) -> str:
    return f"```python\n{code}\n```"
