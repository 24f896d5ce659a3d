"""What the sandboxed verifier process cannot do, each tried in a real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from guards import guards

from burnish.sandbox import seccomp
from burnish.sandbox.codec import decode, encode

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the measures are Linux's"),
    guards("sandbox", "verifiers", "reward_functions"),
]

INSIDE = """
import contextlib, ctypes, json, os, signal, socket, subprocess, sys, tempfile, threading
from burnish.sandbox import isolation as sandbox
scratch = tempfile.mkdtemp(dir=sys.argv[1])
isolation = sandbox.enter(scratch)
found = {}
def attempt(name, what):
    try:
        found[name] = repr(what())
    except BaseException as error:
        found[name] = f"refused: {type(error).__name__}"
"""


def inside(folder: Path, code: str) -> tuple[dict[str, str], dict[str, str]]:
    """What came of each `attempt` in the sandbox, and how far it is isolated."""
    text = INSIDE + textwrap.dedent(code) + "\nprint(json.dumps([found, isolation]))\n"
    done = subprocess.run(
        [sys.executable, "-c", text, str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return tuple(json.loads(done.stdout.splitlines()[-1]))  # type: ignore[return-value]


def test_every_measure_is_reported(tmp_path: Path) -> None:
    found, isolation = inside(tmp_path, "attempt('sum', lambda: sum(range(10)))")
    assert found == {"sum": "45"}
    assert set(isolation) == {"limits", "scratch", "namespaces", "landlock", "seccomp"}
    assert all(said.startswith(("yes: ", "no: ")) for said in isolation.values())
    assert isolation["limits"].startswith("yes") and isolation["scratch"].startswith("yes")
    assert not list(tmp_path.iterdir()), "the scratch folder is gone"


def test_nothing_is_run_written_reached_or_signalled(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("whole")
    found, isolation = inside(
        tmp_path,
        f"""
        place, victim, parent = sys.argv[1], {str(victim)!r}, os.getppid()
        libc = ctypes.CDLL(None)
        attempt("system", lambda: os.system(f"touch {{place}}/system"))
        attempt("libc system", lambda: libc.system(f"touch {{place}}/libc".encode()))
        attempt("popen", lambda: subprocess.run(["touch", f"{{place}}/popen"]))
        attempt("exec", lambda: os.execv("/bin/true", ["true"]))
        attempt("fork", os.fork)
        attempt("write", lambda: open(f"{{place}}/new", "w"))
        attempt("append", lambda: open(victim, "a"))
        attempt("mkdir", lambda: os.mkdir(f"{{place}}/folder"))
        attempt("unlink", lambda: os.unlink(victim))
        attempt("rename", lambda: os.rename(victim, victim + "2"))
        attempt("chmod", lambda: os.chmod(victim, 0))
        attempt("truncate", lambda: os.truncate(victim, 0))
        attempt("symlink", lambda: os.symlink(victim, f"{{place}}/link"))
        attempt("relative", lambda: open("here", "w"))
        attempt("socket", socket.socket)
        attempt("socketpair", socket.socketpair)
        attempt("kill parent", lambda: os.kill(parent, signal.SIGKILL))
        attempt("kill group", lambda: os.kill(0, signal.SIGKILL))
        attempt("session", os.setsid)
        attempt("ptrace", lambda: [][libc.ptrace(16, parent, 0, 0)])
        """,
    )
    if not isolation["seccomp"].startswith("yes"):
        pytest.skip(isolation["seccomp"])
    allowed = {name: what for name, what in found.items() if not what.startswith("refused")}
    assert set(allowed) <= {"system", "libc system"} and "0" not in allowed.values(), allowed
    assert victim.read_text() == "whole" and [place.name for place in tmp_path.iterdir()] == ["victim"]


def test_files_that_are_not_pythons_cannot_be_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password")
    found, isolation = inside(
        tmp_path,
        f"""
        attempt("secret", lambda: open({str(secret)!r}).read())
        attempt("environment", lambda: open(f"/proc/{{os.getppid()}}/environ").read())
        attempt("library", lambda: len(open(json.__file__).read()) > 0)
        """,
    )
    if not isolation["landlock"].startswith("yes"):
        pytest.skip(isolation["landlock"])
    assert found == {
        "secret": "refused: PermissionError",
        "environment": "refused: PermissionError",
        "library": "True",
    }


def test_memory_and_what_computing_needs(tmp_path: Path) -> None:
    """More than the limit of memory is a MemoryError; threads, imports and signals to itself work."""
    found, _ = inside(
        tmp_path,
        """
        attempt("memory", lambda: len(bytearray(sandbox.MEMORY)))
        def threaded():
            thread = threading.Thread(target=lambda: found.update(thread="ran"))
            thread.start()
            thread.join()
        if os.getuid() == 0:  # a limit on processes, which root does not have, counts threads
            attempt("threads", threaded)
        attempt("import", lambda: __import__("fractions").Fraction(1, 2))
        signal.signal(signal.SIGUSR1, lambda *told: None)
        attempt("itself", lambda: os.kill(os.getpid(), signal.SIGUSR1))
        sandbox.limit_cpu(5.0)
        """,
    )
    assert found["memory"] == "refused: MemoryError" and found["import"] == "Fraction(1, 2)"
    assert found.get("thread", "ran") == "ran" and found["itself"] == "None"


def test_processor_time_ends_a_process_that_nobody_watches(tmp_path: Path) -> None:
    code = (
        f"from burnish.sandbox import isolation as sandbox\nsandbox.enter({str(tmp_path / 's')!r})\n"
        "sandbox.limit_cpu(0.0)\nwhile True: pass"
    )
    (tmp_path / "s").mkdir()
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False, capture_output=True)
    assert done.returncode < 0


@pytest.mark.parametrize("machine", sorted(seccomp.ARCHITECTURES))
def test_jumps_of_the_filter_stay_inside_it(machine: str) -> None:
    program = seccomp.program(machine, os.getpid())
    assert len(program) < 4096 and program[-1][0] == 0x06
    for place, (code, yes, no, constant) in enumerate(program):
        assert place + 1 + max(yes, no) < len(program) + (code == 0x06)
        assert 0 <= constant < 2**32 and max(yes, no) < 256


@pytest.mark.parametrize(
    "value",
    [
        (1, (2.5, "x"), [None, True]),
        {"a": (1,), "b": [{"c": ()}]},
        {1: "a", (2, 3): "b", "c": {4: 5}},
        {"__tuple__": [1], "x": 2},
        {"__pairs__": ((1, 2),)},
        "\ud800",
    ],
)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    assert decode(json.loads(json.dumps(encode(value)))) == value
