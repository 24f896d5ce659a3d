"""Canaries: tests that contradict each other. A program that passes them has reached the verdict, not the answer."""

from __future__ import annotations

from dataclasses import replace

from burnish.verifiers.code.tests import Call, Calls, Expression, Scripts, Tests

_NEVER = "\n__burnish_check = check\ndef check(candidate):\n    __burnish_check(candidate)\n    assert not True\n"


def contradicting(tests: Tests) -> Tests:
    """The same tests with one more, which no program can pass together with the others."""
    if isinstance(tests, Calls):
        call = tests.calls[0]
        return replace(tests, calls=(*tests.calls, Call(call.function, call.arguments, [call.expected], call.named)))
    if isinstance(tests, Scripts):
        entered, expected = tests.cases[0]
        return Scripts((*tests.cases, (entered, expected + "\nand something else")))  # compared, not judged
    if isinstance(tests, Expression):
        return replace(tests, numbers=(*tests.numbers, max(tests.numbers) + abs(tests.value) + 1))
    if any("def check(" in test for test in tests.tests):
        return replace(tests, tests=(*tests.tests, _NEVER))
    return replace(tests, tests=(*tests.tests, "assert not True"))
