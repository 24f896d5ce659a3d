"""The process that holds the other engine: how it is started, asked, listened to and ended. Nothing waits without a
limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from burnish.engine.subprocess.messages import Line, Order, Settings
from burnish.util.processes import how_ended, kill_group, last_words

SILENCE = 5.0  # seconds without a sign of life after which a worker is given up
SLOW_START = 300.0  # the same while it imports and loads: some libraries hold the interpreter for long
STALL = 120.0  # seconds alive, but without its work coming any further
OF_A_RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # not the worker's
_SCRIPT = Path(__file__).with_name("worker.py")


class Lost(Exception):
    """The worker is dead, silent or stuck. What it was asked, and how it went, in words."""


class Failed(Exception):
    """The worker is well, but what it was asked to do raised: its message."""


class Process:
    """One worker process, its pipes and its log.

    python    the Python that runs it
    sampler   the file of the class `Sampler` that it runs
    place     a folder of its own, for weights and its log
    settings  what the sampler gets, as JSON
    gpu       the number of the one GPU that it sees, of those that this process sees; by default it sees the same
    """

    def __init__(self, python: str, sampler: Path, place: Path, settings: Settings, gpu: int | None = None) -> None:
        self.log = place / "log.txt"
        path = os.pathsep.join(entry for entry in sys.path if entry) if python == sys.executable else ""
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", *OF_A_RANK)}
        if gpu is not None:
            named = os.environ.get("CUDA_VISIBLE_DEVICES")
            environment["CUDA_VISIBLE_DEVICES"] = named.split(",")[gpu] if named else str(gpu)
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [python, str(_SCRIPT), str(sampler), str(place), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # what it starts is killed with it, and Ctrl-C is not its business
                env={**environment, "PYTHONPATH": path} if path else environment,
            )
        assert self.popen.stdin is not None and self.popen.stdout is not None
        self.to, self.back = self.popen.stdin.fileno(), self.popen.stdout.fileno()
        for pipe in (self.to, self.back):
            os.set_blocking(pipe, False)
        self.end = weakref.finalize(
            self, kill_group, self.popen
        )  # before its pipes close: it must not take the weights
        self.number, self.heard = 0, b""

    def started(self) -> str:
        """Wait until it can be asked; what it says of itself."""
        for line in self._until_done(0, b"", "its start", SLOW_START, SLOW_START):
            if "done" in line:
                return str(line["done"])
        raise AssertionError

    def ask(self, what: str, order: Order) -> Iterator[Line]:
        """Have something done: its answers, the last of which is {"done": ...}. Raises Lost or Failed."""
        self.number += 1
        text = json.dumps({**order, "number": self.number}) + "\n"
        return self._until_done(self.number, text.encode(), what, SILENCE, STALL)

    def _until_done(self, number: int, left: bytes, what: str, silence: float, stall: float) -> Iterator[Line]:
        steps = -1
        alive = further = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self.back, selectors.EVENT_READ)
            if left:
                selector.register(self.to, selectors.EVENT_WRITE)
            while True:
                for key, _ in selector.select(0.2):
                    if key.fd == self.to:
                        left = left[self._send(left, what) :]
                        if not left:
                            selector.unregister(self.to)
                        continue
                    for line in self._lines(what):
                        alive = time.monotonic()
                        if "beat" in line:
                            steps, further = line["beat"], further if line["beat"] == steps else alive
                            continue
                        further = alive
                        if "error" in line:
                            raise Failed(line["error"])
                        yield line
                        if "done" in line and line["number"] == number:
                            return
                now = time.monotonic()
                if now - alive > silence:
                    raise Lost(f"it gave no sign of life for {silence:g} s during {what}")
                if now - further > stall:
                    raise Lost(f"{what} came no further for {stall:g} s")

    def _lines(self, what: str) -> list[Line]:
        piece = os.read(self.back, 1 << 20)
        if not piece:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(1)
            raise Lost(f"its process ended during {what} ({how_ended(self.popen.returncode)})")
        *whole, self.heard = (self.heard + piece).split(b"\n")
        return [json.loads(line) for line in whole]

    def _send(self, data: bytes, what: str) -> int:
        try:
            return os.write(self.to, data[: 1 << 16])
        except BrokenPipeError:
            raise Lost(f"its process had ended before {what}") from None

    def last_words(self) -> str:
        """The last line of its log that says what was wrong, for a message."""
        return last_words(self.log.read_text(errors="replace"))
