"""Rows with tests of programs: what their prompt, their solution and their problem for the code grader are."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from burnish.core.messages import text_of
from burnish.core.seeds import key_of
from burnish.core.task import Task
from burnish.verifiers.code.canary import contradicting
from burnish.verifiers.code.grader import Problem
from burnish.verifiers.code.tests import ground_truth, has_tests, read_tests

CANARY = "canary"  # the key of Task.given that marks a task whose tests are to contradict each other
_SOLUTIONS = ("canonical_solution", "code")


def is_code(given: Mapping[str, object]) -> bool:
    """Whether a row is a programming problem: it has tests, and no answer to compare with."""
    return has_tests(given) and (given.get("answer") is None or ground_truth(given) is not None)


def code_prompt(text: str, row: Mapping[str, object]) -> str:
    """The prompt of a problem in words, as in MBPP: the tests say what the function is called, the text does not."""
    call = _first_call(row.get("test_list"))
    if call is None:
        return text
    name, count = call
    if name in text:
        return text
    takes = "no arguments" if not count else f"{count} argument{'s' if count > 1 else ''}"
    return f"{text.rstrip()}\n\nThe function is called {name} and takes {takes}."


def _first_call(tests: object) -> tuple[str, int] | None:
    """The name of the function that the first assert calls, and the number of its arguments."""
    if not isinstance(tests, list | tuple) or not tests:
        return None
    try:
        tree = ast.parse(str(tests[0]))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    known = {"set", "sorted", "list", "tuple", "len", "abs", "round", "str", "int", "float", "isclose", "all", "any"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in known:
            return node.func.id, len(node.args) + len(node.keywords)
    return None


def code_solution(row: Mapping[str, object], prompt: str) -> str | None:
    """A right reply, if the row has one: the reference program as a block."""
    for column in _SOLUTIONS:
        code = row.get(column)
        if isinstance(code, str) and code.strip():
            begun = column == "canonical_solution" and code[:1].isspace()
            return f"```python\n{(prompt + code) if begun else code}".rstrip() + "\n```"
    return None


def is_canary(task: Task, share: float) -> bool:
    """Whether a task is among the share of programming problems that are canaries, by the hash of its key."""
    return share > 0 and is_code(task.given) and key_of("canary", task.key) % 10_000 < share * 10_000


def problem_of(task: Task, where: str) -> Problem:
    """The tests of a task; a task that is marked as a canary gets tests that contradict each other."""
    prompt = task.prompt if isinstance(task.prompt, str) else text_of(task.prompt[-1])
    tests = read_tests(task.given, prompt, where)
    if tests is None:
        raise ValueError(f"{where}: there are no tests in this row; add test_list, test and entry_point, or calls")
    if task.given.get(CANARY):
        return Problem(contradicting(tests), canary=True)
    return Problem(tests)
