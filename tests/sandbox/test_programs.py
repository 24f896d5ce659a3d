"""Programs of the system in the sandbox (`--tools bash`): what they cannot reach, use up or leave behind."""

from __future__ import annotations

import base64
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from burnish.envs.box_shell import LIMITS, BoxShell
from burnish.sandbox.code import together
from burnish.sandbox.code.box import Box, Child, Ran, Run
from burnish.sandbox.code.limits import Limits
from burnish.sandbox.code.namespaces import HOST
from burnish.sandbox.code.pool import Boxes, Pool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the isolation is Linux's")

EMPTY = BoxShell.of({"a": "1"})


def printed(command: str) -> str:
    return EMPTY.run(command)[1].printed


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    """A zygote of its own for commands."""
    made = Box(LIMITS, programs=True)
    made.ready()
    yield made
    made.end()


def run(box: Box, command: str, limits: Limits = LIMITS) -> Run:
    return box.run([Child("command", {"files": {}, "folder": "/scratch", "command": command})], limits)


# ------------------------------------------------------------------------------------------------- what is out of reach


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that everybody on this machine may read and write, in folders that everybody may enter."""
    path = tmp_path_factory.mktemp("outside") / "file"
    path.write_text("SECRET")
    for place in (path, *list(path.parents)[:3]):
        place.chmod(0o777)
    return path


FILES = """
for way in FILE /proc/self/DIR/FILE /proc/1/DIR/FILE ../../../FILE /scratch/../FILE; do
  cat $way; echo BROKEN > $way; cp /bin/true $way; rm -f $way; ln $way here
done
ln -s FILE link && cat link
python3 - <<'END'
import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
for number, arguments in ((165, (b"none", b"/mnt", b"proc", 0, 0)), (161, (b"/",)), (272, (0x10020000,)), (308, (0, 0)),
                          (304, (-100, 0, 0)), (435, (0, 0)), (425, (8, 0)), (321, (0, 0, 0)), (319, (b"x", 0)),
                          (56, (0x10000011, 0, 0, 0, 0)), (56, (0x20020011, 0, 0, 0, 0)), (428, (-100, b"/", 0))):
    if c.syscall(number, *arguments) >= 0:
        print("ALLOWED", number)
END
find / -type f -writable -not -path '/scratch/*' -not -path '/dev/*' 2>/dev/null | sed 's/^/WRITABLE /'
ls -d /proc/[0-9]* /sys/kernel /home /var /tmp/* /etc/passwd /run/* 2>/dev/null | sed 's/^/SEEN /'
"""


def test_no_file_outside_is_read_written_or_seen(outside: Path) -> None:
    """By its path, by links, by /proc, by mounts, and with the system calls that could make it visible."""
    if platform.machine() != "x86_64":
        pytest.skip("the numbers of its system calls are those of x86_64")
    said = printed(FILES.replace("DIR", "root").replace("FILE", str(outside)))
    assert not {"SECRET", "ALLOWED", "WRITABLE", "SEEN"} & {*said.split()}, said
    assert outside.read_text() == "SECRET" and sorted(outside.parent.iterdir()) == [outside]


def test_no_socket_of_any_family_is_made_and_the_machine_has_another_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        said = printed(
            f"(exec 3<>/dev/tcp/127.0.0.1/{port}) && echo REACHED; uname -n; python3 - <<'END'\n"
            "import socket\nfor family in (1, 2, 10, 16, 17, 40):\n for kind in (1, 2, 3):\n  try:\n"
            "   socket.socket(family, kind); print('MADE', family, kind)\n  except OSError: pass\n"
            "try:\n socket.socketpair(); print('MADE')\nexcept OSError: pass\nEND"
        )
        with pytest.raises(BlockingIOError):
            server.accept()
    assert "REACHED" not in said and "MADE" not in said and HOST in said.splitlines()


@pytest.mark.parametrize(
    "command", ["kill -9 $PPID", "kill -9 -1", "for s in $(seq 64); do kill -$s 1; done; kill -9 -1"]
)
def test_a_command_that_kills_its_parents_ends_its_own_call_alone(command: str, box: Box) -> None:
    before = box._popen.pid
    found = run(box, f"touch x; {command}; sleep 5")
    assert found.seconds < 4 and b'"files"' not in found.children[0].report
    assert not box.ended and box._popen.pid == before
    assert run(box, "echo fine").children[0].printed == b"fine\n"


# -------------------------------------------------------------------------------------------- what it cannot use up


def test_processes_have_a_limit_together_and_none_outlives_its_call(box: Box) -> None:
    """A fork bomb, children in sessions of their own, and what ignores every signal."""
    several = "import os,time\nn=0\ntry:\n while n < 500:\n  if os.fork() == 0: time.sleep(60)\n  n += 1\n"
    found = run(box, f'python3 -c "{several}except OSError: pass\nprint(n)"')
    assert 3 <= int(found.children[0].printed) <= LIMITS.threads + 3
    hidden = "trap '' HUP TERM INT; (setsid -f sleep 60); (setsid nohup sleep 60 &) ; (sleep 60 & disown); echo left"
    found = run(box, hidden)
    assert found.children[0].printed == b"left\n"
    (zygote,) = together.below(box._popen.pid)
    assert together.below(zygote) == []
    assert run(box, "echo fine").children[0].printed == b"fine\n"


GROW = """python3 - <<'END'
import os, time
for n in range(6):
    if os.fork() == 0:
        held = bytearray(b"x" * (MIB << 20))
        time.sleep(20)
time.sleep(TIME)
print("whole")
END"""


def test_memory_is_limited_together(box: Box) -> None:
    """Each of the six has less than a process may have; together they have 240 MiB, and more than 160 are not allowed.
    What forks have in common counts once.
    """
    narrow = replace(LIMITS, together=160 << 20)
    found = run(box, GROW.replace("MIB", "40").replace("TIME", "20"), narrow)
    assert found.large and not found.late and found.seconds < 8 and b"whole" not in found.children[0].printed
    (zygote,) = together.below(box._popen.pid)
    assert together.below(zygote) == []
    shared = GROW.replace("import os, time", 'import os, time\nall = b"x" * (60 << 20)').replace("MIB", "1")
    found = run(box, shared.replace("TIME", "0.5").replace("sleep(20)", "sleep(0.4)"), narrow)
    assert not found.large and found.children[0].printed == b"whole\n"


def test_a_model_reads_why_its_command_was_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pool, "run", lambda self, children: Run([Ran()], large=True))
    after, did = EMPTY.run("x")
    assert "its processes had more than 1024 MiB of memory together" in did.shown and after == EMPTY


def test_the_disk_is_not_filled(box: Box) -> None:
    """The folder is in memory and small; sparse files count when they are read back; no other place is written."""
    said = printed(
        "head -c 50000000 /dev/zero > a; truncate -s 1G b; dd if=/dev/zero of=/tmp/x; stat -fc %b .; stat -c %s a"
    )
    assert int(said.split()[-1]) <= LIMITS.scratch and int(said.split()[-2]) * 4096 <= LIMITS.scratch
    after, did = EMPTY.run("python3 -c \"for n in range(200): open(str(n), 'w').truncate(4 << 20)\"")
    assert did.problem == "its process was ended" and after == EMPTY
    assert run(box, "ls | wc -l").children[0].printed == b"0\n"


@pytest.mark.parametrize(
    "command",
    [
        "ulimit -u 1000", "ulimit -v unlimited", "ulimit -n 100000", "ulimit -t unlimited", "renice -n -5 $$",
        "cp /bin/true t && ./t", "cp /bin/true t; /lib64/ld-linux-x86-64.so.2 ./t", "mknod d c 1 1", "mkfifo p",
        "chroot . true", "su root -c true",
    ],
)  # fmt: skip
def test_no_limit_is_raised_and_no_right_is_gained(command: str) -> None:
    assert EMPTY.run(command)[1].status != 0


def test_descriptors_of_the_sandbox_are_not_inherited() -> None:
    said = printed(
        'python3 -c "import os\nfor n in range(3, 300):\n try: os.fstat(n); print(n)\n except OSError: pass"'
    )
    assert said.split() == ["9"], "the pipe that the folder is written to"


@pytest.mark.parametrize("name", ["\udcff\udcfe", "a\nb", "-rf", "x" * 200])
def test_odd_names_come_back_as_they_are(name: str) -> None:
    raw = base64.b64encode(os.fsencode(name)).decode()
    after, did = EMPTY.run(f'n=$(echo {raw} | base64 -d; echo .); n=${{n%.}}; echo hi > "./$n"')
    assert did.problem == "" and after.text(name) == "hi\n"
    assert after.run("cat ./[!a]* ./a?b 2>/dev/null")[1].printed == "hi\n"


def test_a_box_that_ends_while_it_starts_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal came before its guard could remove what it had made: half of the time."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for _ in range(4):
        made, end = Box(LIMITS), time.monotonic() + 20
        while not any(tmp_path.iterdir()) and time.monotonic() < end:
            pass
        made.end()
        assert not any(tmp_path.iterdir())


# ---------------------------------------------------------------------------------------------------- boxes in turn


class Ending:
    """Stands where a box does; `ended` as the test says."""

    ended = False

    def end(self) -> None:
        self.ended = True


def test_a_box_that_ended_makes_room_for_a_thread_that_waits() -> None:
    """It waited for ever for a box that nobody would give back."""
    boxes, second = Boxes(Ending, 1), []  # type: ignore[arg-type]

    def borrow() -> None:
        with boxes.lent() as box:
            second.append(box)

    with boxes.lent() as first:
        waiting = threading.Thread(target=borrow, daemon=True)
        waiting.start()
        time.sleep(0.02)
        assert not second, "one at a time"
        first.end()
    waiting.join(5)
    assert second and second[0] is not first
    with boxes.lent() as third:
        assert third is second[0], "one that lives is used again"


def test_a_box_that_cannot_be_started_makes_room_too() -> None:
    def fails() -> Box:
        raise OSError("no process")

    boxes = Boxes(fails, 1)
    for _ in range(2):
        with pytest.raises(OSError, match="no process"), boxes.lent():
            pass
    with suppress(OSError):
        boxes.end()
