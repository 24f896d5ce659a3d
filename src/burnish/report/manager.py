"""The dashboard as a run manager: a queue with one run for each device, notes, tags, an archive and a bin.

What it knows beside the runs themselves lies in two files of the runs' folder, .burnish-queue.json and
.burnish-notes.json; deleted runs lie in .burnish-bin until they are restored or removed by hand. A run is a process of
its own: it goes on when the dashboard ends, and a dashboard that is started later finds it by its process id.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from burnish.config.flags import dashed
from burnish.config.options import configure
from burnish.methods.index import INDEX
from burnish.methods.table import find
from burnish.util.files import read_json, write_text
from burnish.util.json_types import Json

QUEUE, NOTES, BIN, LOGS = ".burnish-queue.json", ".burnish-notes.json", ".burnish-bin", ".burnish-logs"
DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]{1,2})?")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,80}")
LOG_BYTES = 20_000  # of a log that the page shows
KEPT = 50  # jobs that are over and still listed


@dataclass(frozen=True)
class Job:
    """A run that was asked for. state: queued, running, done, failed or cancelled. words: after `burnish`."""

    id: str
    words: list[str]
    device: str
    run: str
    state: str = "queued"
    pid: int = 0
    asked: float = 0.0


class Manager:
    """Starts, queues and files the runs below one folder. Thread-safe."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.RLock()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    # ------------------------------------------------------------------------------------------------------ the queue

    def jobs(self) -> list[Job]:
        """The queue, oldest first, after it has moved on."""
        with self._lock:
            return self._moved()

    def start(self, method: str, options: Mapping[str, Json], device: str = "auto") -> Job:
        """Queue a new run; raise ValueError for an option that `burnish train` would not take."""
        if method not in INDEX:
            raise ValueError(f"there is no method {method!r} here; a file of your own is started with burnish train")
        given = {name: value for name, value in options.items() if value not in (None, "") and name != "name"}
        if any(name in given for name in ("out", "device", "run_name", "ranks")):
            raise ValueError("name and device of a run are fields of their own, and the page starts one process a run")
        config = configure(find(method), method, dict(given))  # the same types and ranges as the command line
        name = self._free_name(str(options.get("name") or f"{method}-{config.options.task}"))
        words = ["train", method, *_flags(given), "--device", device, "--out", str(self.root / name)]
        return self._add(words, device, name)

    def proceed(self, run: str, folder: Path, steps: str = "", device: str = "auto") -> Job:
        """Queue the continuation of a stopped or failed run."""
        more = ["--steps", steps] if steps else []
        if steps and not steps.isdecimal():
            raise ValueError(f"steps must be a whole number, not {steps[:20]!r}")
        return self._add(["train", "--resume", str(folder), *more], device, run)

    def cancel(self, number: str) -> None:
        """Take a job out of the queue; a run that has begun is stopped by an order of its own."""
        with self._lock:
            jobs = self._moved()
            if not any(job.id == number and job.state == "queued" for job in jobs):
                raise ValueError("only a run that still waits in the queue can be cancelled; stop a running one")
            self._save([replace(job, state="cancelled") if job.id == number else job for job in jobs])

    def log(self, run: str) -> str:
        """The end of what the newest job of a run printed."""
        with self._lock:
            numbers = [job.id for job in self._read() if job.run == run]
        file = self.root / LOGS / f"{numbers[-1]}.log" if numbers else None
        if file is None or not file.is_file():
            return ""
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - LOG_BYTES))
            return opened.read().decode("utf-8", "replace")

    def _add(self, words: list[str], device: str, run: str) -> Job:
        if not DEVICE.fullmatch(device):
            raise ValueError(f"device is {device[:20]!r}; it takes auto, cpu, cuda or cuda:NUMBER")
        with self._lock:
            jobs = self._moved()
            if any(job.run == run and job.state in ("queued", "running") for job in jobs):
                raise ValueError(f"{run} is in the queue already")
            number = str(max((int(job.id) for job in jobs), default=0) + 1)
            job = Job(number, words, device, run, asked=time.time())
            self._save([*jobs, job])
            return next(one for one in self._moved() if one.id == number)

    def _moved(self) -> list[Job]:
        """The jobs after those that ended are marked and those whose device is free are started."""
        before = self._read()
        jobs = [self._ended(job) if job.state == "running" else job for job in before]
        busy = {job.device for job in jobs if job.state == "running"}
        for i, job in enumerate(jobs):
            if job.state == "queued" and job.device not in busy:
                jobs[i] = self._launched(job)
                busy.add(job.device)
        over = [job for job in jobs if job.state not in ("queued", "running")]
        jobs = [job for job in jobs if job not in over[:-KEPT]]
        if jobs != before:
            self._save(jobs)
        return jobs

    def _launched(self, job: Job) -> Job:
        (self.root / LOGS).mkdir(parents=True, exist_ok=True)
        with (self.root / LOGS / f"{job.id}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "burnish", *job.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the dashboard's terminal is not meant for its runs
            )
        self._processes[job.id] = process
        return replace(job, state="running", pid=process.pid)

    def _ended(self, job: Job) -> Job:
        process = self._processes.get(job.id)
        if process is not None:
            code = process.poll()
            return job if code is None else replace(job, state="done" if code in (0, 130) else "failed")
        try:  # of an earlier dashboard
            os.kill(job.pid, 0)
        except (ProcessLookupError, PermissionError):
            return replace(job, state="done")
        return job

    def _free_name(self, wanted: str) -> str:
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", wanted.rpartition("/")[2]).strip("-.")[:60] or "run"
        taken = {job.run for job in self._read() if job.state == "queued"}
        names = [stem, *(f"{stem}-{n}" for n in range(2, 10_000))]
        return next(name for name in names if name not in taken and not (self.root / name).exists())

    def _read(self) -> list[Job]:
        stored = (read_json(self.root / QUEUE) or {}).get("jobs")
        jobs = []
        for one in stored if isinstance(stored, list) else ():
            try:
                jobs.append(Job(**one))
            except TypeError:  # of another version
                continue
        return jobs

    def _save(self, jobs: list[Job]) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        write_text(self.root / QUEUE, json.dumps({"jobs": [asdict(job) for job in jobs]}, indent=1))

    # --------------------------------------------------------------------------------------- notes, archive and the bin

    def notes(self) -> dict[str, dict[str, Json]]:
        """What people wrote down of runs: note, tags, archived."""
        stored = read_json(self.root / NOTES) or {}
        return {name: value for name, value in stored.items() if isinstance(value, dict)}

    def note(self, run: str, **changed: Json) -> None:
        """Change what is written down of a run."""
        with self._lock:
            known = self.notes()
            known[run] = {name: value for name, value in {**known.get(run, {}), **changed}.items() if value}
            write_text(self.root / NOTES, json.dumps({name: one for name, one in known.items() if one}, indent=1))

    def delete(self, run: str, folder: Path) -> None:
        """Move a run into the bin."""
        place = self.root / BIN / run
        if place.exists():
            raise ValueError(f"{place} has a run of this name already; remove it by hand first")
        place.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(place)

    def restore(self, run: str) -> None:
        """Move a run back out of the bin."""
        place, target = self.root / BIN / run, self.root / run
        if not all(NAME.fullmatch(part) for part in run.split("/")) or not place.is_dir():
            raise ValueError(f"there is no run {run!r} in the bin")
        if target.exists():
            raise ValueError(f"{target} exists by now; move it away first")
        target.parent.mkdir(parents=True, exist_ok=True)
        place.rename(target)

    def deleted(self) -> list[str]:
        """The runs in the bin."""
        place = self.root / BIN
        return sorted(one.name for one in place.iterdir() if one.is_dir()) if place.is_dir() else []


def _flags(given: Mapping[str, Json]) -> list[str]:
    """Options as words of the command line."""
    return [
        f"--{dashed(name)}={str(value).lower() if isinstance(value, bool) else value}" for name, value in given.items()
    ]
