"""The ranks that this process started: which of them is lost, the sentence about it, and the end of all.

A rank is lost when its process has ended before the run is done, or has been stopped by a signal for a while. Its state
is read from /proc, and it need not answer. One that does nothing while others wait for it, or finishes nothing, is lost
after the time that it allowed itself (util/work_units.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from burnish.distributed.heartbeat import STOPPED, StopWatch, WorkWatch, hanging
from burnish.distributed.peers import hang_sentence, lost_sentence
from burnish.distributed.ray.watchdog import Processes, alive, descendants, having
from burnish.models.ranks import MEETING
from burnish.util.failures import LOST_RANK

END_SECONDS = 10.0  # how long ranks have to end by themselves, once one is lost
CHILDREN_SECONDS = 3.0  # how long the processes that ranks have started have to end, once their rank has ended
TICK, LOOK = 0.05, 1.0  # seconds between two looks at whether a rank has ended, and whether it is stopped
SAID_ITSELF = (2, 130)  # exit codes after a sentence on the terminal
LAST_WORDS = 4000  # characters of a rank's output


class Launched:
    """The processes of the ranks of this machine, in order, and the folder with the output of all but the first.

    first: the number of its first rank among those of all machines;  elsewhere: whether other machines have some
    goes_on: whether the run is resumed with the ranks that are left, once one is lost
    """

    def __init__(
        self,
        ranks: list[subprocess.Popen[bytes]],
        folder: Path,
        first: int = 0,
        elsewhere: bool = False,
        goes_on: Callable[[], bool] = lambda: False,
    ) -> None:
        self.ranks, self.folder, self.first, self.elsewhere = ranks, folder, first, elsewhere
        self.goes_on = goes_on
        self.lost: int | None = None  # the rank that was, if the run goes on
        self.ended: list[int] = []  # ranks, in the order in which they ended
        self.stopped: int | None = None  # the rank that was stopped by a signal, or hangs
        self.idle = ""  # what is said of that rank, if it was not stopped by a signal
        self.works = [WorkWatch(process.pid, units_of(folder, rank)) for rank, process in enumerate(ranks)]
        self.below: Processes = {}  # what a rank that is killed has started
        self.watch = StopWatch()

    def wait(self, received: list[int]) -> int:
        """Wait until all ranks have ended, or one is lost: then the others get END_SECONDS. The exit code.

        received: the signals that have come to this process
        """
        passed_on = 0
        while not self._lost():
            if len(self.ended) == len(self.ranks):
                return 0
            for number in received[passed_on:]:  # a terminal sends Ctrl-C to all; SIGTERM comes to this process alone
                passed_on += 1
                if number == signal.SIGTERM:
                    self.ranks[0].send_signal(number)
            time.sleep(TICK)
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline and len(self.ended) < len(self.ranks):
            time.sleep(TICK)
            self._look()
        return self._tell()

    def close(self) -> None:
        """End all ranks, and what they have started."""
        for process in self.ranks:
            self._kill(process)
        left = self.below | having(f"{MEETING}={self.folder}/")
        for pid in _outlasting(left, CHILDREN_SECONDS):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _outlasting(left, CHILDREN_SECONDS)

    def _look(self) -> None:
        self.ended += [r for r, process in enumerate(self.ranks) if r not in self.ended and process.poll() is not None]

    def _lost(self) -> bool:
        """Whether a rank has failed, or has been stopped for too long: then it is killed, and the others notice."""
        self._look()
        if any(self.ranks[rank].returncode for rank in self.ended):
            return True
        if time.monotonic() - self.watch.looked < LOOK:
            return False
        running = [process.pid for rank, process in enumerate(self.ranks) if rank not in self.ended]
        passed = self.watch.look(running)
        if self._hangs(passed):
            return True
        for rank, process in enumerate(self.ranks):
            if process.pid in running and self.watch.stopped[process.pid] >= STOPPED:
                self.stopped = rank
                self._kill(process)
                return True
        return False

    def _hangs(self, passed: float) -> bool:
        """Whether others wait for a rank that does nothing: then it is killed."""
        looked = {rank: work.look(passed) for rank, work in enumerate(self.works) if rank not in self.ended}
        works = {rank: work for rank, work in looked.items() if work is not None}
        rank = hanging(works)
        if rank is None:
            return False
        self.stopped, self.idle = rank, hang_sentence(*works[rank].verdict, works[rank].what)
        self._kill(self.ranks[rank])
        return True

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            self.below |= descendants(process.pid)
            process.kill()
            process.wait()

    def _tell(self) -> int:
        """Say which rank was lost, if it has not said so itself on the terminal; the exit code."""
        codes = [process.poll() for process in self.ranks]
        if self.stopped is not None:
            self._say(self.stopped, self.idle or f"was stopped by a signal (SIGSTOP) for {STOPPED:g} s")
            return 1
        first = codes[0]
        if first in SAID_ITSELF:
            return first
        failed = [rank for rank in self.ended if codes[rank] not in (0, LOST_RANK)]
        rank = (failed or [rank for rank in self.ended if not codes[rank]] or self.ended)[0]
        code = codes[rank] or 0
        if code < 0:
            self._say(rank, _killed_by(-code))
            return 128 - code
        if not failed:
            if codes[rank] == LOST_RANK and self.elsewhere:
                return LOST_RANK  # the rank that was lost is on another machine, and its heartbeat has said so
            print(lost_sentence(self.first + rank, "ended before the run was done"), file=sys.stderr)
            return 1
        if rank:
            log = log_of(self.folder, rank).read_text(errors="replace").strip()
            print(f"rank {self.first + rank} failed (exit code {code}):\n{log[-LAST_WORDS:]}", file=sys.stderr)
        return code

    def _say(self, rank: int, why: str) -> None:
        """The sentence about a lost rank, and what becomes of the run."""
        if not self.goes_on():
            print(lost_sentence(self.first + rank, why), file=sys.stderr)
            return
        self.lost, left = rank, len(self.ranks) - 1
        print(f"rank {rank} {why}; resuming with {left} of {left + 1} ranks (--elastic)", file=sys.stderr)


def _outlasting(processes: Processes, seconds: float) -> list[int]:
    """Those of these processes that have not ended after so many seconds."""
    deadline = time.monotonic() + seconds
    while (pids := alive(processes)) and time.monotonic() < deadline:
        time.sleep(TICK)
    return pids


def log_of(folder: Path, rank: int) -> Path:
    """The file with what a rank has said."""
    return folder / f"rank{rank}.log"


def units_of(folder: Path, rank: int) -> Path:
    """The file in which a rank writes of its work."""
    return folder / f"units{rank}"


def _killed_by(number: int) -> str:
    """What happened to a process that a signal ended."""
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"was killed by {name}" + (" (as by a machine that is out of memory)" if number == signal.SIGKILL else "")
