"""Heartbeats between the ranks that another launcher (torchrun, srun) started, perhaps on several machines.

Beside each rank runs this file as a process of its own, with only the standard library, so that a rank counts as alive
while it computes, even in C code that holds the interpreter lock for minutes. It reads the state of its rank from /proc
(stopped by a signal?), notices its end by a closed pipe, and sends a line a second to the process beside rank 0, the
hub, which tells all who is lost:

    stopped   the rank has been stopped (SIGSTOP) for STOPPED seconds
    ended     its process is gone, without an orderly end
    silent    nothing came from its machine for SILENCE seconds
    idle      others wait for it, and it neither finishes a unit of work nor computes, for as long as it allowed itself
              (util/work_units.py)
    busy      others wait for it, and it computes without finishing a unit, for as long as it allowed itself

Time in which a process was not running itself (a
suspended machine or job) does not count. Who connects must know a random token, which the ranks exchange over gloo.
"""

from __future__ import annotations

import contextlib
import hmac
import math
import os
import selectors
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path

BEAT = 1.0  # seconds between two lines
STOPPED = 10.0  # seconds after which a stopped rank is lost
SILENCE = 15.0  # seconds without a line after which a rank is lost
GRACE = 2.0  # seconds that the others have to end before a stopped rank is killed, when its launcher ends all
JOIN = 60.0  # seconds that a rank has to connect to the hub
LONGEST = 256  # bytes of a line
DONE = b"done"  # a rank says it before it ends in an orderly way
ENDED, STOPS, SILENT, IDLE, BUSY = "ended", "stopped", "silent", "idle", "busy"
UNITS = struct.Struct("<Qdd?40s")  # what a rank writes of its work: util/work_units.py, which this file cannot import
COMPUTES = 0.02  # of a core: a process that takes less, with all below it, does not compute
TICKS = os.sysconf("SC_CLK_TCK")


def state_of(pid: int) -> str:
    """The state of a process: R runs, S sleeps, T is stopped, Z has ended, ...; empty where there is no /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


class StopWatch:
    """For how many seconds processes have been stopped, as seen by calls of `look`."""

    def __init__(self) -> None:
        self.stopped: dict[int, float] = {}
        self.looked = time.monotonic()

    def look(self, pids: list[int]) -> float:
        """Read the states of these processes; the seconds since the last call, of which only a few count."""
        now = time.monotonic()
        passed, self.looked = now - self.looked, now
        for pid in pids:
            self.stopped[pid] = self.stopped.get(pid, 0.0) + min(passed, 2 * BEAT) if state_of(pid) == "T" else 0.0
        return passed


def seconds_of(pid: int) -> float:
    """The CPU time of a process and of all that it has started and that still run, in seconds."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                words = Path(f"/proc/{entry.name}/stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(words[1])
                spent[int(entry.name)] = sum(map(int, words[11:15])) / TICKS
    below, total = {pid}, spent.get(pid, 0.0)
    more = below
    while more := {child for child, parent in parents.items() if parent in more} - below:
        below |= more
        total += sum(spent[child] for child in more)
    return total


@dataclass(frozen=True)
class Work:
    """What is known of a rank's work.

    idle, allowed  for how many seconds it has done nothing, and how many it allows itself
    busy, most     the same without finishing a unit, whether it computes or not
    """

    idle: float
    allowed: float
    busy: float
    most: float
    waits: bool
    what: str

    @property
    def hangs(self) -> bool:
        """Whether it has done nothing, or finished nothing, for too long, if others wait for it."""
        return not self.waits and (self.idle > self.allowed or self.busy > self.most)

    @property
    def verdict(self) -> tuple[str, float]:
        """How it hangs, and for how long. One that computed only just after its last unit is idle."""
        nothing = self.idle > self.allowed or 2 * self.idle >= self.busy
        return (IDLE, self.idle) if nothing else (BUSY, self.busy)


class WorkWatch:
    """Looks at what one rank writes of its work, about once a second."""

    def __init__(self, pid: int, file: Path) -> None:
        self.pid, self.file = pid, file
        self.units, self.spent, self.idle, self.busy = -1, 0.0, 0.0, 0.0

    def look(self, passed: float) -> Work | None:
        """passed: the seconds since the last look, of which only a few count; None before the rank has written."""
        try:
            units, allowed, most, waits, what = UNITS.unpack(self.file.read_bytes())
        except (OSError, struct.error):
            return None
        passed = min(passed, 2 * BEAT)
        rests = units != self.units or waits
        self.idle, self.busy = (0.0, 0.0) if rests else (self.idle + passed, self.busy + passed)
        self.units = units
        if self.idle:  # it is looked at closely only while it finishes nothing
            spent = seconds_of(self.pid)
            if spent - self.spent > COMPUTES * passed:
                self.idle = 0.0
            self.spent = spent
        return Work(self.idle, allowed, self.busy, most, bool(waits), what.rstrip(b"\0").decode("ascii", "replace"))


def hanging(works: dict[int, Work]) -> int | None:
    """The rank that others wait for and that hangs; None where there is none."""
    if not any(work.waits for work in works.values()):
        return None
    return max((rank for rank, work in works.items() if work.hangs), key=lambda rank: works[rank].busy, default=None)


class Lines:
    """A connection that is read by lines; `rank` once its first line was right."""

    def __init__(self, link: socket.socket) -> None:
        self.link, self.rank, self.age, self._unread = link, -1, 0.0, b""
        link.setblocking(False)

    def read(self) -> list[str] | None:
        """The lines that have come; None if the connection is closed, or what came is no line."""
        try:
            data = self.link.recv(4096)
        except BlockingIOError:
            return []
        except OSError:
            return None
        *lines, self._unread = (self._unread + data).split(b"\n")
        if not data or any(len(line) > LONGEST for line in (*lines, self._unread)):
            return None
        return [line.decode("ascii", "replace") for line in lines]

    def write(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a full or a broken connection; its silence is noticed
            self.link.send(line.encode() + b"\n")


class Beside:
    """The process beside one rank. The hub has connections from all others, each other one a connection to the hub."""

    def __init__(self, rank: int, parent: int, token: str, file: Path) -> None:
        self.rank, self.parent, self.token = rank, parent, token
        self.work, self.works = WorkWatch(parent, file), dict[int, Work]()  # works: of all ranks, at the hub
        self.watch, self.links, self.waits = StopWatch(), list[Lines](), selectors.DefaultSelector()
        self.waits.register(0, selectors.EVENT_READ)
        self.server: socket.socket | None = None
        self.lost = self.over = False
        self.ends_at = math.inf  # when the rank is killed, because it is stopped

    def listen(self, host: str) -> int:
        """Accept the others from now on; the port."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.server = socket.create_server((host, 0), family=family, backlog=128)
        self.server.setblocking(False)
        self.waits.register(self.server, selectors.EVENT_READ)
        return int(self.server.getsockname()[1])

    def connect(self, host: str, port: int) -> None:
        link = Lines(socket.create_connection((host, port), timeout=JOIN))
        link.rank = 0
        link.write(f"{self.token} {self.rank}")
        self._add(link)

    def run(self) -> None:
        """Until the rank has ended: beat, listen, judge."""
        while not self.over:
            for key, _ in self.waits.select(BEAT):
                if key.fd == 0:
                    self._rank_ended()
                elif self.server is not None and key.fileobj is self.server:
                    with contextlib.suppress(OSError):
                        self._add(Lines(self.server.accept()[0]))
                else:
                    self._read(key.data)
            self._beat()

    def _add(self, link: Lines) -> None:
        self.links.append(link)
        self.waits.register(link.link, selectors.EVENT_READ, link)

    def _drop(self, link: Lines) -> None:
        self.links.remove(link)
        self.waits.unregister(link.link)
        link.link.close()

    def _rank_ended(self) -> None:
        """The pipe from the rank has a word or is closed."""
        word = os.read(0, len(DONE))
        self.over = True
        if self.rank:
            self._tell("done" if word == DONE else "gone")
        elif word == DONE:
            self._tell("done 0")
        else:
            self._lose(0, ENDED)

    def _read(self, link: Lines) -> None:
        lines = link.read()
        if lines is None:
            self._drop(link)  # without a word it is only the heartbeat that has ended: gloo will say more
            return
        for line in lines:
            link.age = 0.0
            words = line.split()
            if link.rank < 0:
                if len(words) != 2 or not self._known(words[0]) or not words[1].isdigit():
                    self._drop(link)
                    return
                link.rank = int(words[1])
            elif self.rank:  # the hub's word
                self._heard(words)
            elif words == ["gone"]:
                self._lose(link.rank, ENDED)
            elif words == ["done"]:
                self._say(f"done {link.rank}")
                self._tell(f"done {link.rank}")
            elif words == [STOPS]:
                self._lose(link.rank, STOPS)
            elif len(words) == 7 and words[0] == "work":
                with contextlib.suppress(ValueError):
                    idle, allowed, busy, most = map(float, words[1:5])
                    self.works[link.rank] = Work(idle, allowed, busy, most, words[5] == "1", words[6])

    def _known(self, word: str) -> bool:
        return hmac.compare_digest(word.encode(), self.token.encode())

    def _heard(self, words: list[str]) -> None:
        """Pass on what the hub says. A rank that is stopped would never end by itself."""
        if words[:1] in (["lost"], ["done"]):
            self._say(" ".join(words))
        if words[:2] == ["lost", str(self.rank)] and words[2:3] in ([STOPS], [IDLE], [BUSY]):
            self.ends_at = time.monotonic() + GRACE

    def _beat(self) -> None:
        """Once a second: the state of the rank, a line to the others, and how old their last lines are."""
        if time.monotonic() - self.watch.looked < BEAT:
            return
        passed = self.watch.look([self.parent])
        stopped = self.watch.stopped[self.parent] >= STOPPED
        self._tell(STOPS if stopped and self.rank else "beat")
        if stopped and not self.rank:
            self._lose(0, STOPS)
            self.ends_at = min(self.ends_at, time.monotonic() + GRACE)
        self._judge_work(self.work.look(passed))
        if time.monotonic() > self.ends_at:
            self._end_rank()
        for link in list(self.links):
            link.age += min(passed, 2 * BEAT)
            if link.age > SILENCE:
                if link.rank >= 0:
                    self._lose(link.rank, SILENT)
                self._drop(link)

    def _judge_work(self, own: Work | None) -> None:
        """Tell the hub about the own rank's work; at the hub: whether others wait for a rank that does nothing."""
        if own is None:
            return
        if self.rank:
            seconds = f"{own.idle:.1f} {own.allowed:.1f} {own.busy:.1f} {own.most:.1f}"
            self._tell(f"work {seconds} {int(own.waits)} {own.what or '-'}")
            return
        self.works[0] = own
        lost = hanging(self.works)
        if lost is not None:
            how, seconds_lost = self.works[lost].verdict
            self._lose(lost, f"{how} {seconds_lost:.0f} {self.works[lost].what or '-'}")
            if lost == 0:
                self.ends_at = min(self.ends_at, time.monotonic() + GRACE)

    def _lose(self, rank: int, how: str) -> None:
        """The verdict, once; the hub tells all others."""
        if self.lost:
            return
        self.lost = True
        self._say(f"lost {rank} {how}")
        if not self.rank:
            self._tell(f"lost {rank} {how}")

    def _tell(self, line: str) -> None:
        for link in self.links:
            if link.rank >= 0:
                link.write(line)

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(1, line.encode() + b"\n")

    def _end_rank(self) -> None:
        if os.getppid() == self.parent:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.parent, signal.SIGKILL)


def main(rank: int, parent: int, host: str, port: int, file: str) -> None:
    """The hub says its port first. The token is the first line of the standard input."""
    token = b""
    while not token.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return
        token += byte
    beside = Beside(rank, parent, token.decode().strip(), Path(file))
    try:
        if rank:
            beside.connect(host, port)
        else:
            beside._say(f"port {beside.listen(host)}")
    except OSError:
        return
    beside.run()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
