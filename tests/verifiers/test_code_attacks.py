"""No hostile program earns a reward, sees or changes anything outside, or leaves a process behind."""

from __future__ import annotations

import platform
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from code_attacks import attacks, generated, parameters
from guards import guards

from burnish.sandbox.code.box import Box
from burnish.sandbox.code.limits import Limits
from burnish.verifiers.code.grade import grade
from burnish.verifiers.code.outcome import Class, Outcome
from burnish.verifiers.code.tests import Asserts, Call, Calls, Scripts, Tests

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the isolation is Linux's"),
    guards("sandbox", "verifiers", "reward_functions"),
]

FORGERIES = {**attacks("forgeries"), **generated()}
ESCAPES, BOMBS = attacks("escapes"), attacks("bombs")
INPUTS = (2, 5, 11)
CALLS = Calls(tuple(Call("f", (x,), 31 * x + 7) for x in INPUTS))
CHECK = "def check(candidate):\n" + "".join(f"    assert candidate({x}) == {31 * x + 7}\n" for x in INPUTS)
ASSERTS = Asserts((CHECK,), entry="f")
SCRIPTS = Scripts(tuple((f"{x}\n", f"{31 * x + 7}\n") for x in INPUTS))
SHORT = Limits(seconds=0.4, cpu=1, memory=256 << 20)
RIGHT = "def f(x):\n    return 31 * x + 7\n"
_READS = "\nprint(f(int(input())))\n"


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    """One zygote for all attacks of the module: each starts where the others have been."""
    made = Box(SHORT)
    made.ready()
    yield made
    made.end()
    assert not descendants(made._popen.pid)


def descendants(pid: int) -> set[int]:
    """The living processes below a process."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            rest = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if rest[0] != "Z":
            parents[int(stat.parent.name)] = int(rest[1])
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def check_box(box: Box) -> None:
    """The zygote is alone, and still gives right verdicts."""
    assert not box.ended
    assert len(descendants(box._popen.pid)) == 1
    assert graded(box, CALLS, RIGHT).correct


def graded(box: Box, tests: Tests, source: str, limits: Limits = SHORT) -> Outcome:
    return grade(box, tests, f"```python\n{source}\n```", limits)


@pytest.mark.parametrize("tests", [CALLS, ASSERTS], ids=["calls", "asserts"])
def test_a_right_program_passes(box: Box, tests: Tests) -> None:
    assert graded(box, tests, RIGHT, Limits()) == Outcome(Class.PASSED, 3, 3)
    assert graded(box, SCRIPTS, RIGHT + _READS, Limits()) == Outcome(Class.PASSED, 3, 3)


@pytest.mark.parametrize("source", parameters(FORGERIES))
def test_nothing_is_forged_in_calls(box: Box, source: str) -> None:
    found = graded(box, CALLS, source)
    assert not found.correct and found.passed == 0, found
    check_box(box)


@pytest.mark.parametrize("source", parameters(FORGERIES))
def test_nothing_is_forged_in_test_code(box: Box, source: str) -> None:
    found = graded(box, ASSERTS, source)
    assert not found.correct and found.passed == 0, found
    check_box(box)


@pytest.mark.slow
@pytest.mark.parametrize("source", parameters(FORGERIES))
def test_nothing_is_forged_in_scripts(box: Box, source: str) -> None:
    """The same as scripts that print what their function gives, for the first input."""
    found = graded(box, Scripts(SCRIPTS.cases[:1]), source + _READS)
    assert not found.correct, found
    check_box(box)


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that everybody on this machine may read and write."""
    path = tmp_path_factory.mktemp("outside") / "secret"
    path.write_text("untouched")
    path.chmod(0o666)
    for folder in (path.parent, path.parent.parent, path.parent.parent.parent):
        folder.chmod(0o777)
    return path


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A port of this machine on which nobody may call."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server.getsockname()[1]
        with pytest.raises(BlockingIOError):
            server.accept()


_ONLY_X86 = ("syscall(", "fromhex")


@pytest.mark.parametrize("source", parameters(ESCAPES))
def test_nothing_escapes(box: Box, secret: Path, port: int, source: str) -> None:
    if platform.machine() != "x86_64" and any(word in source for word in _ONLY_X86):
        pytest.skip("the numbers of its system calls are those of x86_64")
    source = source.replace("SECRET", str(secret)).replace("PORT", str(port))
    found = graded(box, CALLS, source + "\ndef f(x): return 'ESCAPED' if attack() else 'held'\n")
    assert "ESCAPED" not in found.reason and not found.correct, found
    assert found.kind in (Class.WRONG, Class.RUNTIME), found
    assert secret.read_text() == "untouched"
    check_box(box)


@pytest.mark.parametrize("source", parameters(BOMBS))
def test_bombs_end(box: Box, source: str) -> None:
    found = graded(box, Calls(CALLS.calls[:1]), source)
    assert found.kind in (Class.WRONG, Class.RUNTIME, Class.TIMEOUT, Class.SYNTAX) and found.passed == 0, found
    check_box(box)


@pytest.mark.slow
@pytest.mark.parametrize("source", parameters(BOMBS))
def test_bombs_end_in_test_code_and_scripts(box: Box, source: str) -> None:
    found = graded(box, ASSERTS, source)
    assert not found.correct and found.passed == 0, found
    found = graded(box, Scripts(SCRIPTS.cases[:1]), source + _READS)
    assert not found.correct, found
    check_box(box)


def test_there_are_enough_attacks() -> None:
    assert len(FORGERIES) + len(ESCAPES) + len(BOMBS) >= 240
