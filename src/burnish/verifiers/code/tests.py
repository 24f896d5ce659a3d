"""The tests of a problem: calls with expected values, test code, inputs with expected outputs, or a value.

Tests are trusted; what a program answers is compared with them outside of its process.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Call:
    """A call of a function of the program, with the value that it should have."""

    function: str
    arguments: tuple[object, ...]
    expected: object
    named: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Calls:
    """Calls with expected values. tolerance: of floats; from_json: expected lists stand for tuples too."""

    calls: tuple[Call, ...]
    tolerance: float = 0.0
    from_json: bool = False
    entry: str | None = None
    prompt: str = ""


@dataclass(frozen=True)
class Asserts:
    """Test code: statements with asserts, or a function `check(candidate)` for the function `entry`.

    before  code that defines what the tests need
    prompt  the beginning of the program that the prompt shows, as in HumanEval
    header  code that stands before every program: imports and classes of the problem
    """

    tests: tuple[str, ...]
    before: str = ""
    entry: str | None = None
    prompt: str = ""
    header: str = ""


@dataclass(frozen=True)
class Scripts:
    """Standard inputs, each with the expected standard output.

    judge: a source with judge(input, expected, printed) -> bool, for problems with several right outputs
    """

    cases: tuple[tuple[str, str], ...]
    judge: str = ""


@dataclass(frozen=True)
class Expression:
    """The reply's final answer is an expression with each of these numbers once, which has this value."""

    numbers: tuple[float, ...]
    value: float


Tests = Calls | Asserts | Scripts | Expression


def read_tests(given: Mapping[str, object], prompt: str, where: str) -> Tests | None:
    """The tests among the columns of a row; None if it has none. Raises ValueError for tests that cannot be read.

    calls + entry_point       a list of {"args": [...], "expected": ...}, with "function" and "kwargs" if need be
    test + entry_point        a function check(candidate), as in HumanEval
    test_list                 asserts, as in MBPP, with test_setup_code or test_imports; test_cases, as in AceCode
    inputs + outputs          standard input and output, or with fn_name the arguments and values of a function
    input_output              the same two as an object, or as its JSON
    judge                     beside inputs and outputs: a source with judge(input, expected, printed) -> bool
    cases                     inputs of f(x) with its values, as in the built-in task `code`
    numbers + value           the final answer is an expression with these numbers and this value, as there
    reward_model              verl's {"ground_truth": JSON} (Guru): {"functional": test code}, which stands after the
                              program and extra_info's `prefix` before it, or inputs and outputs as above
    """
    if (truth := ground_truth(given)) is not None:
        return _verl(truth, given, where)
    entry = _text(given.get("entry_point") or given.get("fn_name"))
    if given.get("calls"):
        calls = _list(given["calls"], "calls", where)
        return Calls(tuple(_call(one, entry, where) for one in calls), entry=entry, prompt=prompt)
    if asserts := given.get("test_list") or _assert_cases(given):
        before = [given.get("test_setup_code"), *_list(given.get("test_imports") or [], "test_imports", where)]
        tests = [str(test) for test in _list(asserts, "test_list", where)]
        return Asserts(tuple(tests), "\n".join(str(code) for code in before if code), entry, prompt)
    if given.get("test") and isinstance(given["test"], str):
        return Asserts((given["test"],), prompt if entry and f"def {entry}" in prompt else "", entry, prompt)
    if given.get("cases"):
        return Calls(tuple(Call("f", (x,), value) for x, value in _list(given["cases"], "cases", where)), entry="f")
    if given.get("numbers") and isinstance(value := given.get("value"), int | float):
        return Expression(tuple(_list(given["numbers"], "numbers", where)), value)
    pairs = _json(given["input_output"]) if given.get("input_output") else _listed_pairs(given) or given
    if isinstance(pairs, Mapping) and pairs.get("inputs") is not None and pairs.get("outputs") is not None:
        parsed = _pairs(_json(pairs["inputs"]), _json(pairs["outputs"]), _text(pairs.get("fn_name")) or entry, where)
        judge = _text(given.get("judge")) or ""
        return replace(parsed, judge=judge) if isinstance(parsed, Scripts) and "def judge(" in judge else parsed
    return None


_OF_PROGRAMS = ({"functional"}, {"inputs", "outputs"})


def ground_truth(given: Mapping[str, object]) -> Mapping[str, object] | None:
    """The tests in a row's `reward_model`, or in the JSON that is its answer, as verl's rows of code have them."""
    told = given.get("reward_model")
    truth = told.get("ground_truth") if isinstance(told, Mapping) else None
    for value in (truth, given.get("answer"), given.get("ground_truth")):
        if isinstance(value, str) and value.lstrip()[:1] != "{":
            continue
        tests = _json(value)
        if isinstance(tests, Mapping) and any(names <= tests.keys() for names in _OF_PROGRAMS):
            return tests
    return None


def _verl(truth: Mapping[str, object], given: Mapping[str, object], where: str) -> Tests:
    if "functional" not in truth:
        return _pairs(_json(truth["inputs"]), _json(truth["outputs"]), _text(truth.get("fn_name")), where)
    extra = given.get("extra_info")
    prefix = _text(extra.get("prefix")) if isinstance(extra, Mapping) else None
    return Asserts((str(truth["functional"]),), before=prefix or "", header=prefix or "")


def _listed_pairs(given: Mapping[str, object]) -> Mapping[str, object] | None:
    """`test_cases` as inputs and outputs: one object of both, or a list of {"input", "output"}."""
    cases = _json(given["test_cases"]) if given.get("test_cases") else None
    if (
        isinstance(cases, list)
        and cases
        and all(isinstance(x, Mapping) and {"input", "output"} <= x.keys() for x in cases)
    ):
        return {"inputs": [x["input"] for x in cases], "outputs": [x["output"] for x in cases]}
    return cases if isinstance(cases, Mapping) else None


def _assert_cases(given: Mapping[str, object]) -> object:
    """AceCode's `test_cases`: a list of asserts."""
    cases = _json(given["test_cases"]) if given.get("test_cases") else None
    return cases if isinstance(cases, list) and all(isinstance(one, str) for one in cases) else None


def names_tests(columns: Set[str]) -> bool:
    """Whether these are columns of a row with tests."""
    if columns & {"calls", "test_list", "test_cases", "input_output"}:
        return True
    return columns >= {"test", "entry_point"} or columns >= {"inputs", "outputs"}


def has_tests(given: Mapping[str, object]) -> bool:
    """Whether a row has tests, without reading them."""
    return names_tests({name for name, value in given.items() if value}) or ground_truth(given) is not None


def _pairs(inputs: object, outputs: object, function: str | None, where: str) -> Tests:
    if isinstance(inputs, str) or isinstance(outputs, str):
        inputs, outputs = [inputs], [outputs]
    if not isinstance(inputs, Sequence) or not isinstance(outputs, Sequence) or len(inputs) != len(outputs):
        raise ValueError(f"{where}: `inputs` and `outputs` must be lists of the same length")
    if not inputs:
        raise ValueError(f"{where}: there are 0 tests; add some, or remove the row")
    if function is None:
        return Scripts(tuple((_joined(one), _joined(two)) for one, two in zip(inputs, outputs, strict=True)))
    calls = []
    for one, two in zip(inputs, outputs, strict=True):
        expected = two[0] if isinstance(two, list) and len(two) == 1 else two
        calls.append(Call(function, tuple(one) if isinstance(one, list) else (one,), expected))
    return Calls(tuple(calls), from_json=True, entry=function)


def _call(one: object, entry: str | None, where: str) -> Call:
    if not isinstance(one, Mapping) or "expected" not in one:
        raise ValueError(f'{where}: a call is {{"args": [...], "expected": ...}}, not {one!r:.80}')
    function = one.get("function") or entry
    if not function:
        raise ValueError(f"{where}: a call needs a `function`, or the row an `entry_point`")
    return Call(str(function), tuple(one.get("args", ())), one["expected"], dict(one.get("kwargs") or {}))


def _list(value: object, name: str, where: str) -> Sequence[Any]:
    given = _json(value)
    if not isinstance(given, Sequence):
        raise ValueError(f"{where}: `{name}` must be a list, not {given!r:.80}")
    return given


def _joined(value: object) -> str:
    """Lines may come as a list."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _json(value: object) -> object:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _text(value: object) -> str | None:
    return str(value) if value else None
