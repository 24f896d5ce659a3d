"""A pool of worker processes that train runs in parallel, with one compute thread each.

A run that fails is a result with a reason. A worker that dies fails one run and is replaced. A stop (Ctrl-C or the time
limit) lets every run finish its step and save a checkpoint; the next call resumes unfinished runs.
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

from burnish.compare.job import Job, RunResult, failed

SILENCE = 1800.0  # seconds without a message after which a worker is killed
GRACE = 20.0  # seconds for runs to finish their step after the time limit


@dataclass
class RunningJob:
    """Progress of a running job, for the display."""

    job: Job
    began: float = field(default_factory=time.monotonic)
    used: float = 0.0
    steps: int = 0
    value: float | None = None


class Pool:
    """Run jobs on worker processes. `on_result` is called with every result as soon as it arrives."""

    def __init__(self, workers: int, logs: Path, on_result: Callable[[RunResult], None], gpus: int = 0) -> None:
        self.size, self.logs, self.on_result, self.gpus = workers, logs, on_result, gpus
        self.waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self.running: dict[int, RunningJob] = {}
        self.finished, self.stopping, self.out_of_time, self.why = 0, False, False, ""
        self._lock, self._stop_time = threading.Lock(), 0.0
        self._live: dict[int, subprocess.Popen[str]] = {}
        self._last_message: dict[int, float] = {}

    def run(self, jobs: Sequence[Job], *, limit: float | None = None) -> bool:
        """Run the jobs until they are finished or the time limit is reached; True if all are finished."""
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
                self._kill_silent_workers()
                if deadline and time.monotonic() > deadline and not self.stopping:
                    self.out_of_time = True
                    self.stop("the time limit is reached")
        return self.finished == len(jobs)

    def stop(self, why: str) -> None:
        """Start no new runs; running ones finish their step and save."""
        self.stopping, self.why = True, why
        self._stop_time = time.monotonic()
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
                    self.running[number] = RunningJob(job)
                result = self._run_job(number, process, job)
                with self._lock:
                    del self.running[number]
                    if result is not None:
                        self.on_result(result)
                        self.finished += 1
        finally:
            self._end(number, process)

    def _run_job(self, number: int, process: subprocess.Popen[str], job: Job) -> RunResult | None:
        """The result of one job; None if it was stopped."""
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(job.to_json()) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None if self.stopping else failed(job, self._death(number, process))
        for line in process.stdout:
            self._last_message[number] = time.monotonic()
            message = json.loads(line)
            if message["event"] == "progress":
                running = self.running[number]
                running.used, running.steps, running.value = message["used"], message["steps"], message["value"]
            elif message["event"] == "result":
                return RunResult.from_json(message["result"])
            elif message["event"] == "stopped":
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
                [sys.executable, "-m", "burnish.compare.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )
        self._live[number] = process
        self._last_message[number] = time.monotonic()
        if self.stopping:  # `stop` was called while the worker started
            process.terminate()
        return process

    def _end(self, number: int, process: subprocess.Popen[str] | None) -> None:
        self._live.pop(number, None)
        if process is None:
            return
        assert process.stdin is not None
        with suppress(BrokenPipeError, OSError):
            process.stdin.close()
        try:
            process.wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=GRACE)

    def _kill_silent_workers(self) -> None:
        now = time.monotonic()
        for number, process in list(self._live.items()):
            late = self.out_of_time and now - self._stop_time > GRACE
            if late or (number in self.running and now - self._last_message[number] > SILENCE):
                process.kill()

    def _log(self, number: int) -> Path:
        return self.logs / f"worker-{number}.log"

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        """Inside the block, the first Ctrl-C calls `stop`, and the second kills the workers."""

        def handler(number: int, frame: object) -> None:
            if self.stopping:
                for process in list(self._live.values()):
                    process.kill()
                raise KeyboardInterrupt
            self.stop("you asked to stop")

        try:
            earlier = signal.signal(signal.SIGINT, handler)
        except ValueError:  # only the main thread can handle signals
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, earlier)


def _gpu(number: int) -> str:
    """The n-th GPU of CUDA_VISIBLE_DEVICES, or n if it is not set."""
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return visible[number % len(visible)] if visible else str(number)


def workers_and_gpus(workers: int | None, device: str) -> tuple[int, int]:
    """Number of workers and of GPUs; by default one worker per GPU, or per core without a GPU."""
    gpus = 0
    if device != "cpu":
        import torch

        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers is not None and workers < 1:
        raise ValueError(f"--workers is {workers}; it must be at least 1")
    return workers or gpus or cores, gpus
