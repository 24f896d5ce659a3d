"""Many runs at a time: worker processes, one thread of arithmetic each, fed one job after the other.

A run that fails is a result with a reason. A worker that dies takes one run with it, and another takes its place. A stop
(Ctrl-C, or the time limit) lets every run finish its step and save; what is not done then goes on with the next call.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.compare.job import Found, Job, failed

SILENCE = 1800.0  # seconds without news after which a worker is given up
GRACE = 20.0  # seconds that runs have to finish their step when the time limit is reached


@dataclass
class Going:
    """A run under way, for the display."""

    job: Job
    began: float = field(default_factory=time.monotonic)
    used: float = 0.0
    steps: int = 0
    value: float | None = None


class Pool:
    """Runs jobs on so many workers. `found` hears of every result at once, so that nothing is lost."""

    def __init__(self, workers: int, logs: Path, found: Callable[[Found], None], gpus: int = 0) -> None:
        self.size, self.logs, self.found, self.gpus = workers, logs, found, gpus
        self.waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self.going: dict[int, Going] = {}
        self.finished, self.stopping, self.out_of_time, self.why = 0, False, False, ""
        self._lock, self._asked = threading.Lock(), 0.0
        self._live: dict[int, subprocess.Popen[str]] = {}
        self._heard: dict[int, float] = {}

    def run(self, jobs: Sequence[Job], *, limit: float | None = None) -> bool:
        """All the jobs, or as many as the time limit lets begin; True when none is left."""
        self.logs.mkdir(parents=True, exist_ok=True)
        for job in jobs:
            self.waiting.put(job)
        deadline = time.monotonic() + limit if limit else None
        threads = [
            threading.Thread(target=self._serve, args=(i,), daemon=True) for i in range(min(self.size, len(jobs)))
        ]
        with self._interrupts():
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.1)
                self._give_up_the_silent()
                if deadline and time.monotonic() > deadline and not self.stopping:
                    self.out_of_time = True
                    self.stop("the time limit is reached")
        return self.finished == len(jobs)

    def stop(self, why: str) -> None:
        """No new runs; those under way finish their step and save."""
        self.stopping, self.why = True, why
        self._asked = time.monotonic()
        for process in list(self._live.values()):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)

    def _serve(self, number: int) -> None:
        process: subprocess.Popen[str] | None = None
        try:
            while not self.stopping:
                try:
                    job = self.waiting.get_nowait()
                except queue.Empty:
                    return
                if process is None or process.poll() is not None:
                    process = self._start(number)
                with self._lock:
                    self.going[number] = Going(job)
                result = self._one(number, process, job)
                with self._lock:
                    del self.going[number]
                    if result is not None:
                        self.found(result)
                        self.finished += 1
        finally:
            self._end(number, process)

    def _one(self, number: int, process: subprocess.Popen[str], job: Job) -> Found | None:
        """The result of one job, or none where it was stopped."""
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(job.to_json()) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None if self.stopping else failed(job, self._death(number, process))
        for line in process.stdout:
            self._heard[number] = time.monotonic()
            news = json.loads(line)
            if news["event"] == "progress":
                going = self.going[number]
                going.used, going.steps, going.value = news["used"], news["steps"], news["value"]
            elif news["event"] == "found":
                return Found.from_json(news["found"])
            elif news["event"] == "stopped":
                return None
        return None if self.stopping else failed(job, self._death(number, process))

    def _death(self, number: int, process: subprocess.Popen[str]) -> str:
        code = process.wait(timeout=30)
        how = f"was killed by signal {-code} (out of memory?)" if code < 0 else f"ended with code {code}"
        return f"its process {how}; see {self._log(number)}"

    def _start(self, number: int) -> subprocess.Popen[str]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = _gpu(number % self.gpus)
        with self._log(number).open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "burnish.compare.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, env=environment, start_new_session=True,
            )  # fmt: skip
        self._live[number] = process
        self._heard[number] = time.monotonic()
        if self.stopping:  # asked to stop while it was being started
            process.terminate()
        return process

    def _end(self, number: int, process: subprocess.Popen[str] | None) -> None:
        self._live.pop(number, None)
        if process is None:
            return
        with suppress(BrokenPipeError, OSError):
            process.stdin.close()  # type: ignore[union-attr]
        try:
            process.wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=GRACE)

    def _give_up_the_silent(self) -> None:
        now = time.monotonic()
        for number, process in list(self._live.items()):
            late = self.out_of_time and now - self._asked > GRACE
            if late or (number in self.going and now - self._heard[number] > SILENCE):
                process.kill()

    def _log(self, number: int) -> Path:
        return self.logs / f"worker-{number}.log"

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        """Inside, the first Ctrl-C stops politely, and the second at once."""

        def note(number: int, frame: Any) -> None:
            if self.stopping:
                for process in list(self._live.values()):
                    process.kill()
                raise KeyboardInterrupt
            self.stop("you asked to stop")

        try:
            earlier = signal.signal(signal.SIGINT, note)
        except ValueError:  # not in the main thread: signals are somebody else's
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, earlier)


def _gpu(number: int) -> str:
    """The name of the n-th GPU that this process may see."""
    seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return seen[number % len(seen)] if seen else str(number)


def workers_and_gpus(asked: int | None, device: str) -> tuple[int, int]:
    """How many workers, on how many GPUs: as asked, or one for each GPU, or one for each core."""
    gpus = 0
    if device != "cpu":
        import torch

        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if asked is not None and asked < 1:
        raise ValueError(f"--workers is {asked}; it must be at least 1")
    return asked or gpus or cores, gpus
