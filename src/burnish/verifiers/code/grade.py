"""Grading of one reply: extract the program, run it, compare outside of its process."""

from __future__ import annotations

import json
import os
import re
import signal

from burnish.sandbox.code.box import Box, Child, Ran, Run
from burnish.sandbox.code.limits import Limits
from burnish.sandbox.code.values import encode, matches
from burnish.util.json_types import Json
from burnish.verifiers.code.extract import LONGEST, Program, program_of
from burnish.verifiers.code.outcome import WORST, Class, Outcome
from burnish.verifiers.code.tests import Asserts, Call, Calls, Expression, Scripts, Tests
from burnish.verifiers.final_answer import final_answer

_ARITHMETIC = re.compile(r"[\d+\-*/() ]{1,200}")
_KINDS = {"syntax": Class.SYNTAX, "runtime": Class.RUNTIME}


def grade(box: Box, tests: Tests, reply: str, limits: Limits) -> Outcome:
    """The outcome of the tests for a reply."""
    if isinstance(tests, Expression):
        return _graded_expression(box, tests, reply, limits)
    program = program_of(reply) if isinstance(tests, Scripts) else program_of(reply, tests.entry, tests.prompt)
    if program is None:
        return Outcome(Class.NO_CODE, 0, 0, "there is no code in the reply")
    if isinstance(tests, Calls):
        return _graded_calls(box, tests, program, limits)
    if isinstance(tests, Asserts):
        return _graded_asserts(box, tests, program.below(tests.header), limits)
    return _graded_scripts(box, tests, program, limits)


def _graded_expression(box: Box, tests: Expression, reply: str, limits: Limits) -> Outcome:
    """Run the expression; its numbers are checked in its text."""
    expression = final_answer(reply)
    if not expression or not _ARITHMETIC.fullmatch(expression):
        return Outcome(Class.NO_CODE, 0, 1, "the answer is not an expression of numbers, + - * / and brackets")
    start = reply.rfind(expression)
    program = Program(f"def f():\n    return (\n{expression}\n)", start, 2, expression)
    calls = Calls((Call("f", (), tests.value),))
    outcome = _graded_calls(box, calls, program, limits)
    used = sorted(map(int, re.findall(r"\d+", expression)))
    if outcome.correct and used != sorted(tests.numbers):
        wrong = f"it uses {used}, but each of {sorted(tests.numbers)} must be used exactly once"
        return Outcome(Class.WRONG, 0, 1, wrong)
    return outcome


class _Tally:
    """Results of tests as they come: the worst class, and the first failure."""

    def __init__(self, program: Program, total: int) -> None:
        self.program, self.total = program, total
        self.passed, self.tested = 0, 0
        self.marks: list[bool] = []
        self.kind = Class.PASSED
        self.reason = ""
        self.line: int | None = None

    def add_pass(self) -> None:
        self.passed += 1
        self.tested += 1
        self.marks.append(True)

    def add(self, kind: Class, reason: str, error: object = None) -> None:
        """A failed test. error: what the program's process said about it (load.describe), not to be trusted."""
        self.tested += 1
        self.marks.append(False)
        if self.kind is Class.PASSED:
            self.reason = "".join(letter if letter.isprintable() else "?" for letter in reason[:500])
            self.line = _line(error, self.program)
        self.kind = max(self.kind, kind, key=WORST.index)

    def outcome(self) -> Outcome:
        total = max(self.total, self.tested)
        kind = self.kind
        if kind is Class.PASSED and self.passed < total:
            kind, self.reason = Class.RUNTIME, "the program ended before all tests were done"
        place = self.program.place(self.line)
        return Outcome(kind, self.passed, total, self.reason, self.line, place, marks=tuple(self.marks))


def _graded_calls(box: Box, tests: Calls, program: Program, limits: Limits) -> Outcome:
    calls = [_encoded(call) for call in tests.calls]
    run = box.run([Child("calls", {"code": program.code, "calls": calls})], limits)
    lines = reported(run.children[0].report)
    tally = _Tally(program, len(calls))
    if lines and "error" in lines[0]:
        _add_error(tally, lines[0]["error"])
    elif lines and lines[0].get("loaded") is True:
        for call, line in zip(tests.calls, lines[1:], strict=False):
            if "error" in line:
                _add_error(tally, line["error"], f"{_shown(call)}: ")
            elif matches(call.expected, line.get("value"), tolerance=tests.tolerance, tuples_as_lists=tests.from_json):
                tally.add_pass()
            else:
                tally.add(Class.WRONG, f"{_shown(call)} gives {_shown_value(line.get('value'))}")
    if tally.tested < len(calls) and tally.kind is not Class.SYNTAX:
        _add_end(tally, run, run.children[0], limits)
    return tally.outcome()


def _encoded(call: Call) -> list[object]:
    return [call.function, [encode(one) for one in call.arguments], {k: encode(v) for k, v in call.named.items()}]


def _shown(call: Call) -> str:
    return f"{call.function}({', '.join(f'{one!r:.60}' for one in call.arguments)})"


def _shown_value(data: object) -> str:
    try:
        return json.dumps(data)[:100]
    except (ValueError, RecursionError):
        return "something that cannot be shown"


def _graded_asserts(box: Box, tests: Asserts, program: Program, limits: Limits) -> Outcome:
    data = {"before": tests.before, "tests": list(tests.tests), "entry": tests.entry}
    run = box.run([Child("tests", data), Child("served", {"code": program.code})], limits)
    checked, served = run.children
    lines = reported(checked.report)
    loading = reported(served.report)
    tally = _Tally(program, 0)
    if loading and "error" in loading[0]:
        _add_error(tally, loading[0]["error"])
        return tally.outcome()
    for line in lines:
        if line.get("passed"):
            tally.add_pass()
        elif isinstance(line.get("raised"), dict):
            _add_error(tally, line["raised"])
        elif "wrong" in line:
            tally.add(Class.WRONG, f"a test failed: {line['wrong']}")
    end = lines[-1] if lines else {}
    if "broken" in end:
        return Outcome(Class.WRONG, 0, 0, f"the tests cannot be run: {end['broken']}", failed=True)
    if "gone" in end and not run.late and not _died(served):
        tally.add(Class.RUNTIME, str(end["gone"]))
    elif "gone" in end or end.get("done") is not True:
        _add_end(tally, run, served if "gone" in end else checked, limits)
    elif not tally.tested:
        return Outcome(Class.WRONG, 0, 0, "the tests assert nothing; every program would pass", failed=True)
    return tally.outcome()


def _graded_scripts(box: Box, tests: Scripts, program: Program, limits: Limits) -> Outcome:
    tally = _Tally(program, len(tests.cases))
    for entered, expected in tests.cases:
        run = box.run([Child("program", {"code": program.code}, entered)], limits)
        ran = run.children[0]
        end = reported(ran.report)[-1:]
        if run.late or run.much:
            _add_end(tally, run, ran, limits)
            break  # each further test could take as long
        if end and "error" in end[0]:
            _add_error(tally, end[0]["error"])
            if tally.kind is Class.SYNTAX:
                break
        elif (end and end[0].get("ended") != 0) or (not end and ran.status):
            _add_end(tally, run, ran, limits)
        elif _accepted(box, tests, entered, expected, ran.printed, limits):
            tally.add_pass()
        else:
            shown = ran.printed[:60].decode("utf-8", "replace")
            tally.add(Class.WRONG, f"for the input {entered[:60]!r} it prints {shown!r}")
    return tally.outcome()


def _accepted(box: Box, tests: Scripts, entered: str, expected: str, printed: bytes, limits: Limits) -> bool:
    """Whether an output is right: by the problem's judge, in a process of its own, or by comparison."""
    if not tests.judge:
        return same_output(expected, printed)
    call = ["judge", [entered, expected, printed.decode("utf-8", "replace")], {}]
    run = box.run([Child("calls", {"code": tests.judge, "calls": [call]})], limits)
    return [line.get("value") for line in reported(run.children[0].report)[1:]] == [True]


def same_output(expected: str, printed: bytes) -> bool:
    """Whether the lines are the same, spaces at their ends and empty lines at the end aside."""
    return _normal(expected) == _normal(printed.decode("utf-8", "replace"))


def _normal(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]


def _add_error(tally: _Tally, error: object, before: str = "") -> None:
    """A failed test by what the program's process said of its error."""
    report = error if isinstance(error, dict) else {}
    kind, name, message = (
        text if isinstance(text := report.get(key), str) else "" for key in ("kind", "name", "message")
    )
    line = _line(report, tally.program)
    where = "" if line is None else f" (line {line})"
    tally.add(_KINDS.get(kind, Class.RUNTIME), f"{before}{name[:100]}: {message[:300]}{where}", report)


def _line(error: object, program: Program) -> int | None:
    """The line in the reply's part of the program that an error names."""
    line = error.get("line") if isinstance(error, dict) else None
    return line - program.above if type(line) is int and 0 < line - program.above <= LONGEST else None


def _died(ran: Ran) -> bool:
    """Whether a process ended by a signal other than that by which it is ended after the tests."""
    return ran.status >= 0 and os.WIFSIGNALED(ran.status) and os.WTERMSIG(ran.status) != signal.SIGKILL


def _add_end(tally: _Tally, run: Run, ran: Ran, limits: Limits) -> None:
    """A failed test by the way in which a process ended."""
    if run.late or (os.WIFSIGNALED(ran.status) and os.WTERMSIG(ran.status) == signal.SIGXCPU):
        tally.add(Class.TIMEOUT, f"not finished after {limits.seconds:g} s")
    elif run.much:
        tally.add(Class.RUNTIME, f"it wrote more than {limits.output >> 10} KiB")
    elif ran.status >= 0 and os.WIFSIGNALED(ran.status):
        tally.add(Class.RUNTIME, f"its process was ended by {signal.Signals(os.WTERMSIG(ran.status)).name}")
    else:
        tally.add(Class.RUNTIME, "its process ended before all tests were done")


def reported(report: bytes) -> list[dict[str, Json]]:
    """The lines of a report that are objects; "1" stands for a passed test, "0" for a failed one."""
    entries: list[dict[str, Json]] = []
    for line in report.split(b"\n"):
        if line in (b"1", b"0"):
            entries.append({"passed": True} if line == b"1" else {"wrong": ""})
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            entries.append(data)
    return entries
