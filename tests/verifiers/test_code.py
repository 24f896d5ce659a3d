"""Grading of programs: extraction, test kinds, outcome classes, values, canaries, and the machine's isolation."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from burnish.sandbox.code.confine import missing
from burnish.sandbox.code.limits import Limits
from burnish.sandbox.code.values import NotALiteral, decode, encode, matches
from burnish.score.judge import judge
from burnish.tasks.code import Code
from burnish.tasks.data.dataset import Dataset
from burnish.tasks.table import source
from burnish.verifiers.code.canary import contradicting
from burnish.verifiers.code.extract import program_of
from burnish.verifiers.code.grade import same_output
from burnish.verifiers.code.grader import CodeGrader, Problem
from burnish.verifiers.code.outcome import Class, Outcome, verdict_of
from burnish.verifiers.code.tests import Asserts, Call, Calls, Tests, has_tests, read_tests

linux = pytest.mark.skipif(sys.platform != "linux", reason="the isolation is Linux's")

PROMPT = 'from typing import List\n\n\ndef inc(x: int) -> int:\n    """Add one."""\n'
CHECK = "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(5) == 6\n"
HUMANEVAL = {"prompt": PROMPT, "test": CHECK, "entry_point": "inc"}
MBPP = {"test_list": ["assert add(1, 2) == 3", "assert set(both([1, 1, 2])) == {1, 2}"]}
STDIN = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}


@pytest.fixture(scope="module")
def grader() -> Iterator[CodeGrader]:
    made = CodeGrader(workers=1)
    yield made
    made.end()


def outcome(grader: CodeGrader, row: dict[str, Any] | Tests, reply: str, seconds: float = 10.0) -> Outcome:
    tests = read_tests(row, row.get("prompt", ""), "the row") if isinstance(row, dict) else row
    assert tests is not None
    return grader.outcomes([Problem(tests)], [reply], seconds)[0]


VALUES = [
    *(None, True, 3, -(10**40), 2.5, "a\ud800\0", b"\xff", 1 + 2j, range(1, 9, 2), Decimal("1.10"), Fraction(1, 3)),
    *([1, [2]], (1, (2,)), {1, 2}, frozenset({(1, 2)}), {"a": [1], (1, 2): {3}}, math.inf, [], (), set(), {}),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_survive_and_match_themselves_alone(value: Any) -> None:
    data = json.loads(json.dumps(encode(value)))
    back = decode(data)
    assert back == value and type(back) is type(value)
    equal = [other for other in VALUES if matches(other, data)]
    assert equal == [other for other in VALUES if other == value]


def test_what_is_no_value_matches_nothing() -> None:
    for data in ({"t": "set", "v": [[1]]}, {"t": "set", "v": [1, 1]}, {"t": "int", "v": "zz"}, {"t": "x", "v": 1}, {}):
        assert not any(matches(value, data) for value in [*VALUES, {1}, {1, 2}, {1: 1}])
    assert not matches({1: 2, 3: 4}, {"t": "dict", "v": [[1, 2], [1, 2]]})
    deep: Any = []
    for _ in range(300):
        deep = [deep]
    with pytest.raises(NotALiteral):
        encode(deep)
    with pytest.raises(NotALiteral):
        decode({"t": "decimal", "v": "1e999999"})


def test_tolerance_and_tuples() -> None:
    assert not matches(0.3, 0.1 + 0.2) and matches(0.3, 0.1 + 0.2, tolerance=1e-9)
    assert not matches(1.0, True, tolerance=1e-9) and matches(1.0, 1)
    pair = encode((1, 2))
    assert not matches([1, 2], pair) and matches([1, 2], pair, tuples_as_lists=True)


def test_values_that_are_printed_differently_are_not_equal() -> None:
    for one, other in ((1, True), (True, 1), (0, False), (0.0, False), (0.0, -0.0), (-0.0, 0.0), (1.0, True)):
        assert not matches(one, encode(other)), (one, other)
        assert not matches([2, (one,)], encode([2, (other,)]))
        assert not matches({one}, encode({other})) and not matches({one: 2}, encode({other: 2}))
        assert not matches({(one, 2)}, encode({(other, 2)}))
        assert not matches({frozenset({one})}, encode({frozenset({other})}))
    for one, other in ((1, 1), (True, True), (0, 0.0), (2.0, 2), (0.0, 0.0), (-0.0, -0.0)):
        assert matches(one, encode(other)) and matches({(one,): one}, encode({(other,): other}))
    assert matches(0.0, -0.0, tolerance=1e-9), "with a tolerance they are near enough"


def test_the_program_of_a_reply() -> None:
    reply = "First:\n```python\nold()\n```\nBetter:\n```python\ndef f(x):\n    return y\n```\nDone."
    program = program_of(reply)
    assert program is not None and program.code == "def f(x):\n    return y\n"
    start, end = program.place(2) or (0, 0)
    assert reply[start:end] == "    return y" and program.place(3) is None
    assert (
        program_of("I do not know.") is None and program_of("```\n```") is None and program_of("```sh\nls\n```") is None
    )
    plain = program_of("x = 1\nprint(x)")
    assert plain is not None and plain.code == "x = 1\nprint(x)"
    unclosed = program_of("```python\nx = 1\n")
    assert unclosed is not None and unclosed.code == "x = 1\n"


def test_a_prompt_that_begins_the_program() -> None:
    body = program_of("    return x + 1\n\nAnd that is it.", "inc", PROMPT)
    assert body is not None and body.code == PROMPT + "    return x + 1\n\n" and body.above == 5
    whole = program_of("```python\ndef inc(x):\n    return x + 1\n```", "inc", PROMPT)
    assert whole is not None and whole.code.startswith("from typing import List\n\n\ndef inc(x):") and whole.above == 3


@linux
@pytest.mark.parametrize(
    ("reply", "kind", "passed", "line"),
    [
        ("    return x + 1\n", Class.PASSED, 2, None),
        ("```python\ndef inc(x: List) -> int:\n    return x + 1\n```", Class.PASSED, 2, None),
        ("    return 2\n", Class.WRONG, 1, None),
        ("    y = 0\n    return x // y\n", Class.RUNTIME, 0, 2),
        ("    if x == 5:\n        raise ValueError\n    return x + 1\n", Class.RUNTIME, 1, 2),
        ("    y = 0\n    return x +\n", Class.SYNTAX, 0, 2),
        ("    while True: pass\n", Class.TIMEOUT, 0, None),
        ("That is hard.", Class.NO_CODE, 0, None),
    ],
)
def test_outcomes_of_humaneval(grader: CodeGrader, reply: str, kind: Class, passed: int, line: int | None) -> None:
    found = outcome(grader, HUMANEVAL, reply, 0.5 if kind is Class.TIMEOUT else 10.0)
    assert (found.kind, found.passed, found.line) == (kind, passed, line), found
    if line is not None:
        assert found.place is not None
        assert reply[slice(*found.place)] == reply.splitlines()[line - 1 + ("```" in reply)]


@linux
def test_asserts_of_mbpp(grader: CodeGrader) -> None:
    right = "def add(a, b): return a + b\ndef both(x): return dict.fromkeys(x).keys()"
    assert outcome(grader, MBPP, right) == Outcome(Class.PASSED, 2, 2)
    half = outcome(grader, MBPP, "def add(a, b): return a + b\ndef both(x): return [1]")
    assert (half.kind, half.share) == (Class.WRONG, 0.5)
    assert outcome(grader, MBPP, "def add(a, b): return a + b").kind is Class.RUNTIME


@linux
def test_objects_of_the_program_come_back_to_it(grader: CodeGrader) -> None:
    row = {"test_list": ["assert area(Square(3)) == 9", "assert list(count(3)) == [0, 1, 2]", "assert Square(1) != 1"]}
    code = """
        class Square:
            def __init__(self, side): self.side = side
            def __eq__(self, other): return True
        def area(square): return square.side ** 2
        def count(n): yield from range(n)
    """
    assert outcome(grader, row, textwrap.dedent(code)) == Outcome(Class.PASSED, 3, 3)


@linux
def test_test_code_may_expect_errors_and_use_helpers(grader: CodeGrader) -> None:
    test = """
        from solution import half as also
        def check(candidate):
            try:
                candidate(3)
                assert False
            except ValueError as error:
                assert 'odd' in str(error)
            for n in (2, 4):
                assert candidate(n) * 2 == n and also(n) == double(n) // 4
    """
    prompt = "def double(x): return 2 * x\n\ndef half(x):\n"
    row = {"prompt": prompt, "test": textwrap.dedent(test), "entry_point": "half"}
    right = "    if x % 2:\n        raise ValueError('odd')\n    return x // 2\n"
    assert outcome(grader, row, right) == Outcome(Class.PASSED, 2, 2)
    assert outcome(grader, row, "    return x // 2\n").kind is Class.WRONG


@linux
def test_tests_that_say_nothing_give_no_verdict(grader: CodeGrader) -> None:
    for test in ("x = 1", "def check(candidate):\n    candidate(1)\n", "this is no Python", "import nothing_like_this"):
        found = outcome(grader, Asserts((test,), entry="f"), "def f(x): return x")
        assert found.failed and not found.correct and verdict_of(found).failed, found


@linux
def test_an_error_of_the_program_does_not_end_a_loop_of_the_tests(grader: CodeGrader) -> None:
    """StopIteration in `all(map(f, ...))` would end it, and `all` of nothing is true."""
    row = {"test_list": ["assert all(map(good, [1, 2]))"]}
    assert outcome(grader, row, "def good(x): return x > 0").correct
    assert outcome(grader, row, "def good(x): raise StopIteration").kind is Class.RUNTIME


@linux
def test_reasons_can_be_printed_and_stored(grader: CodeGrader) -> None:
    found = outcome(grader, MBPP, "def add(a, b): raise ValueError('\\ud800\\x1b[2J')")
    assert found.reason.isprintable() and "ValueError" in found.reason and found.reason.encode()


@linux
def test_scripts(grader: CodeGrader) -> None:
    assert outcome(grader, STDIN, "a, b = map(int, input().split())\nprint(a + b)") == Outcome(Class.PASSED, 2, 2)
    assert outcome(grader, STDIN, "import sys\nprint(sum(map(int, sys.stdin.read().split())), end=' ')").correct
    assert outcome(grader, STDIN, "print(3)").share == 0.5
    assert outcome(grader, STDIN, "print(3)\nimport sys\nsys.exit(1)").kind is Class.RUNTIME
    assert outcome(grader, STDIN, "print(3").kind is Class.SYNTAX
    threads = "import threading\nthreading.Timer(0.01, lambda: print(sum(map(int, input().split())))).start()"
    assert outcome(grader, STDIN, threads).correct, "a script ends with its last thread"
    assert same_output("1\n2 \n", b"1  \n2\n\n") and not same_output("1\n2", b"1 2")


@linux
def test_calls(grader: CodeGrader) -> None:
    calls = Calls((Call("f", ([3, 1],), [1, 3]), Call("f", ([],), [], {"reverse": True})))
    assert outcome(grader, calls, "def f(x, reverse=False): return sorted(x, reverse=reverse)").correct
    assert outcome(grader, calls, "class Solution:\n    def f(self, x, reverse=0): return sorted(x)").correct
    assert outcome(grader, calls, "def f(x, reverse=0): x.sort()").kind is Class.WRONG
    apps = {"input_output": json.dumps({"fn_name": "two", "inputs": [[1], [2]], "outputs": [[[1, 1]], [[2, 2]]]})}
    assert outcome(grader, apps, "def two(x): return (x, x)").correct, "JSON has no tuples"


def test_columns() -> None:
    assert has_tests(HUMANEVAL) and has_tests(MBPP) and has_tests(STDIN)
    assert (
        not has_tests({"test": "x"})
        and not has_tests({"inputs": "x"})
        and read_tests({"answer": "1"}, "", "row") is None
    )
    with pytest.raises(ValueError, match="0 tests"):
        read_tests({"inputs": [], "outputs": []}, "", "row")
    with pytest.raises(ValueError, match="same length"):
        read_tests({"inputs": ["1"], "outputs": ["1", "2"]}, "", "row")
    with pytest.raises(ValueError, match="entry_point"):
        read_tests({"calls": [{"args": [1], "expected": 2}]}, "", "row")


@linux
@pytest.mark.parametrize(
    "row", [HUMANEVAL, MBPP, STDIN, {"calls": [{"args": [1], "expected": 2}], "entry_point": "inc"}]
)
def test_nobody_passes_a_canary(grader: CodeGrader, row: dict[str, Any]) -> None:
    tests = read_tests(row, row.get("prompt", ""), "row")
    assert tests is not None
    replies = {
        id(HUMANEVAL): "    return x + 1\n",
        id(MBPP): "def add(a, b): return a + b\ndef both(x): return x",
        id(STDIN): "print(sum(map(int, input().split())))",
    }
    reply = replies.get(id(row), "def inc(x): return x + 1")
    right, canary = grader.outcomes([Problem(tests), Problem(contradicting(tests), canary=True)], [reply] * 2)
    assert right.correct and not right.canary
    assert canary.canary and canary.passed == right.passed and not canary.correct and not canary.alarm


def test_a_passed_canary_scores_nothing_and_is_counted() -> None:
    verdict = verdict_of(Outcome(Class.PASSED, 2, 2, canary=True))
    assert (verdict.score, verdict.correct, verdict.parts["canary_passed"]) == (0.0, False, 1.0)
    assert "forged" in verdict.reason
    assert verdict_of(Outcome(Class.WRONG, 1, 2, canary=True)).parts["canary_passed"] == 0.0


@linux
@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_the_built_in_task_knows_right_from_wrong(level: int) -> None:
    task = source(f"code:{level}")
    assert isinstance(task, Code)
    tasks = [task.task("train", index) for index in range(12)]
    assert [one.key for one in tasks] == [source(f"code:{level}").task("train", index).key for index in range(12)]
    assert not {one.key for one in tasks} & {task.task("heldout", index).key for index in range(40)}
    for name, right in (("demo", True), ("mistake", False)):
        found = judge(task, tasks, [one.given[name] for one in tasks])
        assert [verdict.correct for verdict in found] == [right] * 12, [verdict.reason for verdict in found]
    canaries = [Code(level=level, canary=0.5).task("train", index) for index in range(12)]
    marked = [one for one in canaries if one.given.get("canary")]
    assert 0 < len(marked) < 12 and not any(
        v.correct for v in judge(task, marked, [one.given["demo"] for one in marked])
    )


def test_options_of_code_tasks() -> None:
    for build in (Code, lambda **options: Dataset([{"text": "x", **MBPP}], **options)):
        with pytest.raises(ValueError, match="canary=2 is not a share"):
            build(canary=2)
        with pytest.raises(ValueError, match="unsafe_code=maybe is neither yes nor no"):
            build(unsafe_code="maybe")


def test_limits_are_positive() -> None:
    with pytest.raises(ValueError, match="memory=0"):
        Limits(memory=0)


@linux
def test_what_is_in_force_is_reported(grader: CodeGrader) -> None:
    found = grader.isolation
    assert set(found) == {"namespaces", "limits", "files", "privileges", "seccomp"}
    assert not missing({name: said for name, said in found.items() if name != "namespaces"})


WITHOUT = """
import ctypes, json, sys
from burnish.sandbox import seccomp
refused = [seccomp.REFUSED["unshare"][0], *({landlock})]
program = [(0x20, 0, 0, 0)]
for number in refused:
    program += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]
seccomp.load([*program, (0x06, 0, 0, 0x7FFF0000)])
from burnish.sandbox.code.box import Box, Child, NotIsolated
from burnish.sandbox.code.limits import Limits
box = Box(Limits(seconds=5), isolated={isolated})
try:
    box.ready()
except NotIsolated as error:
    print(json.dumps(dict(refused=str(error))))
    raise SystemExit
def run(code):
    return box.run([Child("program", dict(code=code), "7")], Limits(seconds=5)).children[0].printed.decode()
print(json.dumps(dict(
    isolation=box.isolation,
    right=run("print(int(input()) + 1)"),
    secret=run("try: print(open('/etc/hostname').read() and 'READ')\\nexcept OSError as e: print('no')"),
    write=run("try: open('/tmp/written', 'w'); print('WROTE')\\nexcept OSError as e: print('no')"),
    fork=run("import os\\ntry: os.fork(); print('FORKED')\\nexcept OSError as e: print('no')"),
)))
box.end()
"""


def without(landlock: str, isolated: bool) -> dict[str, Any]:
    """What a machine without namespaces does, and without Landlock where its calls are given."""
    code = WITHOUT.replace("{landlock}", landlock).replace("{isolated}", str(isolated))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@linux
def test_landlock_and_seccomp_isolate_where_there_are_no_namespaces() -> None:
    found = without("", True)
    if "refused" in found:
        pytest.skip("this kernel has no Landlock")
    assert found["isolation"]["namespaces"].startswith("no:") and "Landlock" in found["isolation"]["files"]
    assert (found["right"], found["secret"], found["write"], found["fork"]) == ("8\n", "no\n", "no\n", "no\n")


@linux
def test_without_both_it_refuses_in_one_sentence_unless_told_otherwise() -> None:
    refused = without("444, 445, 446", True)["refused"]
    assert "cannot isolate model-written code" in refused and "unsafe_code=yes" in refused and "\n" not in refused
    told = without("444, 445, 446", False)
    assert told["right"] == "8\n" and told["fork"] == "no\n", "what the machine has is still in force"
    assert told["isolation"]["files"].startswith("no:")


@linux
def test_a_zygote_that_was_killed_is_replaced(grader: CodeGrader) -> None:
    with grader.box() as box:
        box._popen.kill()
    assert outcome(grader, STDIN, "print(sum(map(int, input().split())))").correct


@linux
def test_a_killed_run_leaves_no_process_and_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = """
import os
from burnish.sandbox.code.box import Box
from burnish.sandbox.code.limits import Limits
box = Box(Limits())
box.ready()
print(box._popen.pid, len(os.listdir(os.environ["TMPDIR"])), flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    guard, folders = map(int, done.stdout.split())
    assert folders == 1
    deadline = time.monotonic() + 10
    while lives(guard) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not lives(guard) and not list(tmp_path.iterdir())


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
