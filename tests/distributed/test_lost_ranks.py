"""Ranks that are killed, stopped, silent or only busy: who is lost, and what is said. Stand-ins for ranks, no torch."""

from __future__ import annotations

import math
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from guards import guards

from burnish.distributed import heartbeat, launch, launched
from burnish.distributed.launch import LAUNCHER
from burnish.distributed.launched import Launched, log_of, units_of
from burnish.distributed.ray import watchdog
from burnish.models.ranks import MEETING
from burnish.util import work_units
from burnish.util.failures import LOST_RANK
from burnish.util.work_units import UNITS, WorkUnits

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="states are read from /proc"),
    guards("distributed", "models/ranks.py"),
]
STOPPED = 0.6  # seconds, in place of 10
SLEEPS, BUSY = "import time; time.sleep(60)", "while True: sum(range(10**9))"  # one call holds the lock for 10 s


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launched, "STOPPED", STOPPED)
    monkeypatch.setattr(launched, "LOOK", 0.1)
    monkeypatch.setattr(launched, "END_SECONDS", 0.5)
    monkeypatch.setattr(launched, "CHILDREN_SECONDS", 0.2)


def ranks(folder: Path, *programs: str) -> Launched:
    """Stand-ins for ranks: Python programs."""
    own = {**os.environ, MEETING: f"{folder}/meeting"}
    made = [subprocess.Popen([sys.executable, "-I", "-S", "-c", program], env=own) for program in programs]
    for rank in range(len(made)):
        log_of(folder, rank).write_text(f"the words of rank {rank}\n")
    return Launched(made, folder)


def outcome(made: Launched, capfd: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """The exit code and what was said; nothing of the ranks is left."""
    try:
        code = made.wait([])
    finally:
        made.close()
    assert all(process.poll() is not None for process in made.ranks)
    assert not watchdog.having(f"{MEETING}={made.folder}/")
    return code, capfd.readouterr().err.strip().splitlines()


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_that_goes_on_says_with_how_many(begun: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Before the run has a folder there is nothing to go on with."""
    made = ranks(tmp_path, SLEEPS, SLEEPS, SLEEPS)
    made.goes_on = lambda: begun
    made.ranks[1].kill()
    _, said = outcome(made, capfd)
    assert made.lost == (1 if begun else None) and len(said) == 1
    assert said[0].endswith("resuming with 2 of 3 ranks (--elastic)") == begun


def test_the_gpu_of_a_lost_rank_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    left = launch._without([], 1)
    assert left == ["4", "7"] and launch._without(left, 0) == ["7"]


def test_only_a_launcher_of_one_machine_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    launch.check_elastic(True)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="--elastic works with --ranks on one machine"):
        launch.check_elastic(True)
    monkeypatch.setenv(MEETING, "/nowhere/meeting")
    launch.check_elastic(True)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("number", "code", "what"),
    [(signal.SIGKILL, 137, "was killed by SIGKILL"), (signal.SIGSTOP, 1, r"was stopped by a signal \(SIGSTOP\)")],
)
def test_a_lost_rank_is_one_sentence(
    rank: int, number: signal.Signals, code: int, what: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The other rank is in a long call, and is ended."""
    made = ranks(tmp_path, *([SLEEPS, BUSY] if rank == 0 else [BUSY, SLEEPS]))
    made.ranks[rank].send_signal(number)
    found, said = outcome(made, capfd)
    assert found == code and len(said) == 1
    assert re.match(f"rank {rank} {what}.*, so the run was ended; continue it .* --resume RUN$", said[0]), said


def test_a_rank_that_is_stopped_for_a_moment_or_busy_is_not_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Stopped twice for half of the limit, and one call in C all the time: nobody is lost."""
    made = ranks(tmp_path, "import time; time.sleep(1.4)", "sum(range(150_000_000))")
    for process in made.ranks:
        process.send_signal(signal.SIGSTOP)
        subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -CONT {process.pid}"])
    assert outcome(made, capfd) == (0, [])


def test_the_rank_that_failed_is_named_not_those_that_noticed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ranks that lost a connection are silent, whoever ends first; the last words are those of the failed rank."""
    noticed = f"import sys; sys.exit({LOST_RANK})"
    code, said = outcome(ranks(tmp_path, noticed, noticed, "import time, sys; time.sleep(0.2); sys.exit(3)"), capfd)
    assert code == 3 and said == ["rank 2 failed (exit code 3):", "the words of rank 2"]
    code, said = outcome(ranks(tmp_path, noticed, "pass"), capfd)
    assert code == 1 and said[0].startswith("rank 1 ended before the run was done") and len(said) == 1
    code, said = outcome(ranks(tmp_path, "import sys; sys.exit(2)", "import sys; sys.exit(2)"), capfd)
    assert (code, said) == (2, []), "rank 0 has said it on the terminal"


def test_what_a_rank_started_ends_with_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A child in a session of its own, of a rank that is killed from outside, and that of one that is stopped."""
    starts = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEPS!r}], start_new_session=True)\n"
    made = ranks(tmp_path, starts + SLEEPS, starts + SLEEPS)
    while len(watchdog.having(f"{MEETING}={tmp_path}/")) < 4:
        time.sleep(0.02)
    made.ranks[0].kill()
    code, said = outcome(made, capfd)
    assert code == 137 and len(said) == 1


def test_a_rank_whose_launcher_was_killed_before_it_joined_ends(tmp_path: Path) -> None:
    """Its parent is another process by then, and the kernel has told it nothing."""
    own = {"RANK": "0", "WORLD_SIZE": "2", MEETING: f"{tmp_path}/ranks/meeting", LAUNCHER: "4000000"}
    (tmp_path / "ranks").mkdir()
    program = "from burnish.distributed import launch; launch.join('cpu')"
    found = subprocess.run([sys.executable, "-c", program], env={**os.environ, **own}, timeout=60, check=False)
    assert found.returncode == LOST_RANK and not (tmp_path / "ranks").exists()


# --------------------------------------------------------------------------------------------------------------- work


def says(folder: Path, rank: int, allowed: float, waits: bool, units: int = 1, most: float = float("inf")) -> None:
    """What a rank wrote of its work."""
    units_of(folder, rank).write_bytes(struct.pack(work_units.LAYOUT, units, allowed, most, waits, b"sampling"))


WORKS = """
import struct, time
for n in range(12):
    with open({file!r}, "wb") as file: file.write(struct.pack({layout!r}, n, 0.5, 0.5, False, b""))
    time.sleep(0.12)
"""


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_does_nothing_while_others_wait_is_named(
    rank: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for one in (0, 1):
        says(tmp_path, one, 0.5, waits=one != rank)
    code, said = outcome(ranks(tmp_path, SLEEPS, SLEEPS), capfd)
    assert code == 1 and len(said) == 1
    assert re.match(
        rf"rank {rank} did nothing for \d s while others waited for it \(it was sampling\): .*--rank-", said[0]
    )
    assert "so the run was ended; continue it" in said[0]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_computes_without_end_is_named(
    rank: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It may do nothing for an hour, but not compute for longer than its limit without a unit."""
    for one in (0, 1):
        says(tmp_path, one, 3600.0, waits=one != rank, most=0.5)
    code, said = outcome(ranks(tmp_path, *([BUSY, SLEEPS] if rank == 0 else [SLEEPS, BUSY])), capfd)
    assert code == 1 and len(said) == 1
    assert re.match(
        rf"rank {rank} computed for \d s while others waited for it \(it was sampling\), and finished no unit of work; "
        "--rank-timeout sets the limit, so the run was ended; continue it",
        said[0],
    )


@pytest.mark.parametrize("kind", ["it computes", "its child computes", "units", "nobody waits", "all wait", "it may"])
def test_a_rank_that_works_is_not_lost(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """For three times as long as a rank may do nothing."""
    says(tmp_path, 0, 0.5, waits=kind != "nobody waits")
    says(tmp_path, 1, 60.0 if kind == "it may" else 0.5, waits=kind == "all wait")
    program = "import time; time.sleep(1.5)"
    if kind == "it computes":
        program = "import time\nend = time.time() + 1.5\nwhile time.time() < end: sum(range(10**6))"
    elif kind == "its child computes":
        inner = "import time; end = time.time() + 1.5\nwhile time.time() < end: pass"
        program = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {inner!r}])"
    elif kind == "units":
        program = WORKS.format(file=str(units_of(tmp_path, 1)), layout=work_units.LAYOUT)
    assert outcome(ranks(tmp_path, "import time; time.sleep(1.5)", program), capfd) == (0, [])


def test_what_a_rank_writes_is_what_the_others_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert heartbeat.UNITS.format == work_units.LAYOUT, "heartbeat.py cannot import it"
    own = WorkUnits()
    own.done()  # nobody reads it
    own.publish(tmp_path / "units")

    def read() -> tuple[int, float, bool, str]:
        done, allowed, _, waits, what = heartbeat.UNITS.unpack((tmp_path / "units").read_bytes())
        return done, allowed, waits, what.rstrip(b"\0").decode()

    assert read() == (0, 3600.0, False, "")
    with own.own_code(work_units.SAMPLING):
        assert read() == (1, 30.0, False, "sampling")
        own.done()
        with own.waiting():
            assert read() == (2, 30.0, True, "sampling")
        assert read() == (3, 30.0, False, "sampling")
    assert read() == (4, 3600.0, False, "")
    own.allow(5.0)
    with own.own_code(work_units.SAMPLING):
        assert read()[1] == 5.0
    assert read()[1] == 5.0
    own.allow(None)
    assert read()[1] == 3600.0


def test_a_decode_step_is_endless_by_those_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 times the longest of at least 20, never less than 30 s; no limit where a user's code runs."""
    now = 100.0
    monkeypatch.setattr(work_units.time, "monotonic", lambda: now)
    own = WorkUnits()
    own.publish(tmp_path / "units")

    def most() -> float:
        return float(heartbeat.UNITS.unpack((tmp_path / "units").read_bytes())[2])

    with own.own_code(work_units.SAMPLING):
        for _ in range(work_units.ENOUGH - 2):
            now += 0.5
            own.done()
        assert most() == math.inf
        now += 2.5
        own.done()
        assert most() == 50.0
        now += 0.5
        own.done()
        with own.waiting():
            now += 1000.0
        assert most() == 50.0, "what it waits is no unit of its own"
    assert most() == math.inf, "code of a user may run"
    now += 1000.0
    with own.own_code(work_units.SAMPLING):
        own.done()
        assert most() == 50.0
    own.allow(5.0)
    assert most() == 5.0, "what the user has set holds everywhere"


def test_short_decode_steps_leave_30_seconds(tmp_path: Path) -> None:
    own = WorkUnits()
    own.publish(tmp_path / "units")
    with own.own_code(work_units.SAMPLING):
        for _ in range(work_units.ENOUGH):
            own.done()
        assert heartbeat.UNITS.unpack((tmp_path / "units").read_bytes())[2] == 30.0


def test_sampling_and_learning_are_counted(small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode steps and micro-batches, while the engine samples in code of its own."""
    from conftest import SMALL, build_cast, build_method

    from burnish.core.loop import loop

    seen: list[str] = []
    monkeypatch.setattr(UNITS, "done", lambda: seen.append(UNITS._what))
    method = build_method("grpo", small_model)
    list(loop(method, build_cast(method, small_model), SMALL, steps=1))
    assert seen.count(work_units.SAMPLING) > 2 and seen.count("") >= 1


# ----------------------------------------------------------------------------------------------------------- heartbeats

HURRIED = """
import sys
from burnish.distributed import heartbeat as h
h.BEAT, h.STOPPED, h.SILENCE = 0.1, 0.6, 0.8
h.main(int(sys.argv[1]), int(sys.argv[2]), "127.0.0.1", int(sys.argv[3]), sys.argv[4])
"""


class Heartbeats:
    """Two stand-ins for ranks, and the heartbeat process of each."""

    def __init__(self, stack: ExitStack, program: str = SLEEPS, folder: Path = Path("/nowhere")) -> None:
        self.ranks = [self._start(stack, program) for _ in range(2)]
        hub = self._start(stack, HURRIED, "0", str(self.ranks[0].pid), "0", str(units_of(folder, 0)))
        self.port = self._line(hub, b"secret\n").split()[1]
        other = self._start(stack, HURRIED, "1", str(self.ranks[1].pid), self.port, str(units_of(folder, 1)))
        assert other.stdin is not None
        other.stdin.write(b"secret\n")
        other.stdin.flush()
        while not self._talks(other.pid):
            time.sleep(0.01)
        self.beside = [hub, other]

    def _start(self, stack: ExitStack, *words: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        process = stack.enter_context(subprocess.Popen([sys.executable, "-c", *words], stdin=pipe, stdout=pipe))
        stack.callback(process.kill)
        return process

    def _talks(self, pid: int) -> bool:
        """Whether a process has a connection."""
        with suppress(OSError):
            return any(os.readlink(fd).startswith("socket:") for fd in Path(f"/proc/{pid}/fd").iterdir())
        return False

    def _line(self, process: subprocess.Popen[bytes], word: bytes) -> str:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(word)
        process.stdin.flush()
        return process.stdout.readline().decode()

    def said(self) -> list[str]:
        """The next line of each."""
        return [process.stdout.readline().decode().strip() for process in self.beside if process.stdout is not None]

    def nothing_for(self, seconds: float) -> bool:
        pipes = [process.stdout for process in self.beside]
        return not select.select(pipes, [], [], seconds)[0]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


@pytest.mark.parametrize("rank", [0, 1])
def test_all_hear_of_a_stopped_rank(rank: int, stack: ExitStack) -> None:
    made = Heartbeats(stack)
    made.ranks[rank].send_signal(signal.SIGSTOP)
    began = time.monotonic()
    assert made.said() == [f"lost {rank} stopped"] * 2
    assert time.monotonic() - began < 3


@pytest.mark.parametrize("rank", [0, 1])
def test_all_hear_of_a_rank_whose_process_is_gone(rank: int, stack: ExitStack) -> None:
    """Its end of the pipe is closed without a word."""
    made = Heartbeats(stack)
    assert made.nothing_for(0.3)
    pipe = made.beside[rank].stdin
    assert pipe is not None
    pipe.close()
    assert made.said()[1 - rank] == f"lost {rank} ended"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_machine_that_is_gone_is_noticed_by_its_silence(rank: int, stack: ExitStack) -> None:
    """The heartbeat process itself is stopped: nothing comes, and no connection is closed."""
    made = Heartbeats(stack)
    assert made.nothing_for(0.3)
    made.beside[rank].send_signal(signal.SIGSTOP)
    other = made.beside[1 - rank].stdout
    assert other is not None and other.readline().decode().strip() == f"lost {rank} silent"
    made.beside[rank].send_signal(signal.SIGCONT)


@pytest.mark.parametrize("rank", [0, 1])
def test_all_hear_of_a_rank_that_does_nothing(rank: int, stack: ExitStack, tmp_path: Path) -> None:
    made = Heartbeats(stack, folder=tmp_path)
    assert made.nothing_for(0.3)
    for one in (0, 1):
        says(tmp_path, one, 0.5, waits=one != rank)
    assert [line.split()[:3] for line in made.said()] == [["lost", str(rank), "idle"]] * 2


@pytest.mark.parametrize("rank", [0, 1])
def test_all_hear_of_a_rank_that_computes_without_end(rank: int, stack: ExitStack, tmp_path: Path) -> None:
    made = Heartbeats(stack, BUSY, folder=tmp_path)
    assert made.nothing_for(0.3)
    for one in (0, 1):
        says(tmp_path, one, 3600.0, waits=one != rank, most=0.5)
    assert [line.split()[:3] for line in made.said()] == [["lost", str(rank), "busy"]] * 2


def test_a_rank_that_computes_in_one_long_call_is_alive(stack: ExitStack) -> None:
    """It holds the interpreter lock for longer than every limit."""
    assert Heartbeats(stack, BUSY).nothing_for(2.0)


def test_an_orderly_end_is_no_loss(stack: ExitStack) -> None:
    made = Heartbeats(stack)
    pipe = made.beside[1].stdin
    assert pipe is not None and made.nothing_for(0.2)
    pipe.write(heartbeat.DONE)
    pipe.close()
    assert made.beside[0].stdout is not None and made.beside[0].stdout.readline().decode().strip() == "done 1"
    assert not heartbeat.state_of(0)


def test_strangers_are_not_heard(stack: ExitStack) -> None:
    """A connection without the token, with long lines or with none; the run does not notice."""
    made = Heartbeats(stack)
    for words in (b"wrong 1\ngone\n", b"x" * 5000, b"secret\n", b"secret one\n", b"\xff\xfe 1\ngone\n"):
        with socket.create_connection(("127.0.0.1", int(made.port)), timeout=5) as link:
            link.sendall(words)
            with suppress(ConnectionResetError):
                assert link.recv(100) == b"", words
    assert made.nothing_for(0.3)
