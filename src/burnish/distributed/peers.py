"""What a rank knows of the others: who is lost, by the heartbeats of distributed/heartbeat.py.

A rank that hears that another one is lost ends its wait for it with one sentence (models/ranks.py). If it does not come
to that, because it computes or because NCCL waits on the GPU, its process is ended END_SECONDS later.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from burnish.distributed import heartbeat
from burnish.models.ranks import Ranks, watch_by
from burnish.util.work_units import UNITS

END_SECONDS = 8.0  # how long the main thread has to end by itself, once a rank is lost
AGAIN = "continue it from its last checkpoint with burnish train --resume RUN"
HOW = {
    heartbeat.ENDED: "ended while the others waited for it: it was killed, or its own message says why",
    heartbeat.STOPS: f"was stopped by a signal (SIGSTOP) for {heartbeat.STOPPED:g} s",
    heartbeat.SILENT: f"sent no heartbeat for {heartbeat.SILENCE:g} s: its machine or the network to it is down",
}


def hang_sentence(how: str, seconds: float, what: str) -> str:
    """What a rank did that hung. how: idle or busy."""
    doing = f" (it was {what})" if what.strip("-") else ""
    if how == heartbeat.BUSY:
        return (
            f"computed for {seconds:.0f} s while others waited for it{doing}, and finished no unit of work; "
            "--rank-timeout sets the limit"
        )
    return (
        f"did nothing for {seconds:.0f} s while others waited for it{doing}: no unit of work was done, and it computed "
        "nothing; --rank-timeout sets the limit"
    )


def lost_sentence(rank: int, what: str) -> str:
    """The one sentence about a lost rank."""
    return f"rank {rank} {what}, so the run was ended; {AGAIN}"


class Peers:
    """Listens to the heartbeat process of this rank."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.told = threading.Event()
        self.sentence, self.done = "", set[int]()
        self.process: subprocess.Popen[bytes] | None = None
        handle, name = tempfile.mkstemp(prefix="burnish-units-")
        os.close(handle)
        self.units = Path(name)  # where this rank writes of its work
        atexit.register(self.units.unlink, missing_ok=True)
        UNITS.publish(self.units)

    def begin(self) -> None:
        """Start the heartbeat processes of all ranks. Where they cannot meet, the run goes on without."""
        host, port, token = "", 0, ""
        if not self.ranks.rank:
            host, token = _address(), secrets.token_hex(32)
            port = self._start(host, 0, token)
        host, port, token = self.ranks.from_first((host, port, token))  # a list, after the exchange
        if self.ranks.rank and port:
            self._start(host, port, token)
        if self.process is not None:
            threading.Thread(target=self._listen, args=(self.process,), name="burnish-peers", daemon=True).start()
            atexit.register(self.end)
            watch_by(self)

    def lost(self, seconds: float = 0.0) -> str:
        """The sentence about a lost rank; empty if none was lost within so many seconds."""
        if seconds:
            self.told.wait(seconds)
        if not self.sentence and seconds and self.done:
            self._lose(min(self.done), HOW[heartbeat.ENDED])
        return self.sentence

    def end(self) -> None:
        """At the end of this process: an orderly one, or after a loss, when gloo's threads would wait for the lost."""
        atexit.unregister(self.end)
        if self.sentence:
            atexit._run_exitfuncs()  # what was registered before
            _exit()
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.write(heartbeat.DONE)
                self.process.stdin.close()

    def _start(self, host: str, port: int, token: str) -> int:
        """Start this rank's heartbeat process; the port of the hub, 0 if it has none."""
        words = [sys.executable, "-I", heartbeat.__file__, str(self.ranks.rank), str(os.getpid()), host, str(port)]
        words.append(str(self.units))
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=quiet, start_new_session=True)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(token.encode() + b"\n")
        process.stdin.flush()
        self.process = process
        if self.ranks.rank:
            return port
        words_said = process.stdout.readline().decode().split()
        if not words_said:
            self.process = None
        return int(words_said[1]) if words_said else 0

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            words = line.decode("ascii", "replace").split()
            if words[:1] == ["done"]:
                self.done.add(int(words[1]))
            elif words[:1] == ["lost"]:
                hangs = words[2] in (heartbeat.IDLE, heartbeat.BUSY)
                self._lose(
                    int(words[1]), hang_sentence(words[2], float(words[3]), words[4]) if hangs else HOW[words[2]]
                )
                break
        if self.sentence:
            time.sleep(END_SECONDS)
            cleaning = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
            cleaning.start()
            cleaning.join(2.0)
            _exit()

    def _lose(self, rank: int, what: str) -> None:
        """Say it at once, on the first rank that is left: the launcher may end this process soon."""
        if self.sentence:
            return
        self.sentence = lost_sentence(rank, what)
        self.told.set()
        if self.ranks.rank == (0 if rank else 1):
            with contextlib.suppress(OSError):
                os.write(2, f"{self.sentence}\n".encode())


def _exit() -> None:
    """End this process without waiting for threads of gloo and NCCL, which may never end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(1)


def _address() -> str:
    """The address of this machine on the network of the ranks."""
    main = os.environ.get("MASTER_ADDR", "localhost")
    try:
        family, kind, _, _, address = socket.getaddrinfo(main, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as link:
            link.connect(address)
            return str(link.getsockname()[0])
    except OSError:
        return "127.0.0.1"
