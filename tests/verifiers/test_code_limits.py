"""Honest programs pass in the sandbox, and each of its limits stops what goes over it with all others wide open."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from code_attacks import attacks, parameters

from burnish.sandbox import landlock
from burnish.sandbox.code.box import Box
from burnish.sandbox.code.limits import Limits
from burnish.verifiers.code.grade import grade
from burnish.verifiers.code.outcome import Outcome
from burnish.verifiers.code.tests import Call, Calls, Scripts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the isolation is Linux's")

WIDE = Limits(
    seconds=60.0, cpu=60.0, memory=8 << 30, scratch=256 << 20, files=10_000, open=1024, threads=200, output=64 << 20
)
DOUBLED = Scripts((("4\n", "8\n"),))


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    made = Box(WIDE)
    made.ready()
    yield made
    made.end()


@pytest.mark.parametrize("source", parameters(attacks("honest")))
def test_an_honest_program_passes(box: Box, source: str) -> None:
    """Within the usual limits: rewrapped streams, temporary files, asyncio, multiprocessing, pools, deep recursion."""
    found = grade(box, DOUBLED, f"```python\n{source}\n```", Limits())
    assert found.correct, found


def test_what_wraps_the_streams_prints_all_of_it(box: Box) -> None:
    source = "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nprint(2 * int(input()), end='')"
    assert grade(box, DOUBLED, f"```python\n{source}\n```", Limits()).correct


# the limit -> (a value that is too small, a program whose f(0) goes over it and gives 1)
OVER = {
    "seconds": (0.3, "import time\ndef f(x):\n    time.sleep(0.6)\n    return 1"),
    "cpu": (1.0, "import time\ndef f(x):\n    while time.process_time() < 1.7: pass\n    return 1"),
    "memory": (256 << 20, "def f(x): return len(bytearray(300 << 20)) >> 28"),
    "scratch": (1 << 20, "def f(x):\n    with open('a', 'wb') as a: a.write(bytes(2 << 20))\n    return 1"),
    "open": (32, "import os\ndef f(x): return len([os.pipe() for _ in range(40)]) // 40"),
    "threads": (
        8,
        "import threading\ndef f(x):\n    done = threading.Event()\n"
        "    many = [threading.Thread(target=done.wait, daemon=True) for _ in range(40)]\n"
        "    try: [one.start() for one in many]\n    finally: done.set()\n    return 1",
    ),
    "output": (1 << 16, "def f(x): return [1] * 10 if x else 'a' * (1 << 17)"),
}


def passed(box: Box, source: str, limits: Limits) -> Outcome:
    expected = "a" * (1 << 17) if "1 << 17" in source else 1
    return grade(box, Calls((Call("f", (0,), expected),)), f"```python\n{source}\n```", limits)


@pytest.mark.parametrize("name", OVER)
def test_a_limit_stops_alone(name: str, box: Box) -> None:
    value, source = OVER[name]
    assert passed(box, source, WIDE).correct, "nothing else stops it"
    found = passed(box, source, replace(WIDE, **{name: value}))
    assert not found.correct and found.passed == 0, found


@pytest.mark.parametrize(
    ("narrow", "source"),
    [
        ({"scratch": 1 << 20}, "open(str(n), 'wb').write(bytes(300_000))"),
        ({"files": 20}, "open(str(n), 'w').close()"),
    ],
    ids=["bytes", "files"],
)
def test_the_working_folder_is_limited_alone(narrow: dict[str, int], source: str, box: Box) -> None:
    """Not by the size of one file, but of all, and by their number: what the zygote mounts."""
    program = f"def f(x):\n    for n in range(40):\n        {source}\n    return 1"
    assert passed(box, program, WIDE).correct
    own = Box(replace(WIDE, **narrow))
    try:
        found = passed(own, program, WIDE)
    finally:
        own.end()
    assert not found.correct and "No space left" in found.reason, found


def test_every_limit_has_a_case() -> None:
    assert {*OVER, "files"} == set(Limits.__dataclass_fields__) - {"together"}  # tests/sandbox/test_programs.py


# ------------------------------------------------------------------------------------- the process of verifiers

MEASURES = """
import json, mmap, os, resource, socket
from burnish.sandbox import isolation as sandbox
said = sandbox.{measure}
found = {{}}
def attempt(name, what):
    try:
        what()
        found[name] = "done"
    except BaseException as error:
        found[name] = type(error).__name__
attempt("memory", lambda: mmap.mmap(-1, 5 << 30).close())
def descriptors():
    held = []
    try:
        while len(held) < 200:
            held.append(os.dup(0))
    finally:
        for one in held:
            os.close(one)
attempt("descriptors", descriptors)
attempt("read", lambda: open("/etc/hostname").read())
attempt("write", lambda: os.write(os.open("{file}", os.O_WRONLY), b"x" * 99))
attempt("socket", lambda: socket.socket())
def fork():
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
attempt("process", fork)
print(json.dumps([said, found, resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_NPROC)]))
"""
STOPS = {
    "_limit()": {"memory": "OSError", "descriptors": "OSError", "write": "OSError"},
    "_landlock()": {"read": "PermissionError", "write": "PermissionError"},
    "_seccomp()": {"write": "PermissionError", "socket": "PermissionError", "process": "PermissionError"},
}


@pytest.mark.parametrize("measure", STOPS)
def test_a_measure_of_verifiers_holds_alone(measure: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code = MEASURES.format(measure=measure, file=tmp_path / "file")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said, found, core, processes = json.loads(done.stdout)
    assert said.startswith("yes")
    if measure == "_limit()":
        found.pop("process")  # root may start them all the same
    assert found == {**dict.fromkeys(found, "done"), **STOPS[measure]}
    if measure == "_limit()":
        assert core == [0, 0] and processes == [0, 0]


# ----------------------------------------------------------------------------------- the process of model-written code

ALONE = """
import json, os, socket, sys, tempfile
from burnish.sandbox.code import confine, namespaces, root
from burnish.sandbox.code.limits import Limits
rules = confine.landlock_rules(False)
plan = confine.Plan(own_root=False, rules=rules, user=None, folder="/", required=False)
wide = Limits(memory=8 << 30, open=1024, cpu=60.0, threads=200)
def enter():
    import socket as loaded  # what it needs must be imported before its files are out of sight
    home = tempfile.mkdtemp(dir="{folder}")
    namespaces.enter()
    if os.fork():
        os.wait()
        os._exit(0)
    from burnish.sandbox.code import kernel
    kernel.unshare(kernel.NEW_MOUNTS)
    root.build(home, "size=1048576,mode=0777", [])
{measure}
found = {{}}
def attempt(name, what):
    try:
        what()
        found[name] = "done"
    except OSError as error:
        found[name] = type(error).__name__
def fork():
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
def server():
    with socket.socket() as line:
        line.connect(("127.0.0.1", {port}))
attempt("read", lambda: open("{file}").read())
attempt("write", lambda: os.write(os.open("{file}", os.O_WRONLY), b"x" * 9))
attempt("owner", lambda: os.chown("{file}", 1234, 1234))
attempt("connect", server)
attempt("signal", lambda: os.kill({pid}, 0))
attempt("process", fork)
print(json.dumps(found), flush=True)
"""
GONE = "FileNotFoundError"
ALONE_STOPS = {  # measure -> what it stops with all others off
    "confine._limit(plan, wide)": {"write": "OSError"},
    "confine._files(plan)": dict.fromkeys(("read", "write", "connect", "signal"), "PermissionError"),
    "confine._privileges(plan)": {"owner": "PermissionError"},
    "confine._seccomp(plan)": dict.fromkeys(("write", "owner", "connect", "signal", "process"), "PermissionError"),
    "enter()": {"read": GONE, "write": GONE, "owner": GONE, "connect": "OSError", "signal": "ProcessLookupError"},
}


@pytest.mark.parametrize("measure", ALONE_STOPS)
def test_a_measure_of_code_holds_alone(measure: str, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root has rights that can be dropped")
    file = tmp_path / "file"
    file.write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = ALONE.format(measure=measure, file=file, folder=tmp_path, port=port, pid=os.getpid())
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    expected = {**dict.fromkeys(found, "done"), **ALONE_STOPS[measure]}
    if measure == "confine._files(plan)":
        rules, version = landlock.ruleset([])
        os.close(rules)
        expected |= {name: "done" for name, since in (("connect", 4), ("signal", 6)) if version < since}
    assert found == expected
