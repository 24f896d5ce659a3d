"""Run the jobs of a comparison that have no result yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from burnish.compare.display import Display
from burnish.compare.job import Job, RunResult
from burnish.compare.pool import Pool, workers_and_gpus
from burnish.compare.results import ResultsFile


@dataclass(frozen=True)
class Results:
    """The results so far; `complete` is true if all jobs have one, else `why` is the reason for the stop."""

    rows: list[RunResult]
    complete: bool
    why: str = ""


def run_jobs(
    jobs: Sequence[Job],
    out: Path,
    console: Console,
    *,
    title: str,
    workers: int | None = None,
    device: str = "auto",
    limit: float | None = None,
    file: ResultsFile | None = None,
) -> Results:
    """Run the jobs without a result on all cores or GPUs; results are written as they arrive.

    file: where to; by default out/results.json, all of whose results have the same budget
    """
    if file is None:
        file = ResultsFile(out / "results.json")
        file.of(jobs[0].budget)
    missing = [job for job in jobs if not file.done(job.key)]
    why = ""
    if missing:
        size, gpus = workers_and_gpus(workers, device)

        def on_result(row: RunResult) -> None:
            display.on_result(row)
            file.add(row)

        with Display(console, title, len(jobs), len(jobs) - len(missing)) as display:
            pool = display.follow(Pool(size, out / "logs", on_result, gpus))
            try:
                pool.run(missing, limit=limit)
            finally:
                file.save()
            why = pool.why
    keys = {job.key for job in jobs}
    rows = sorted((row for row in file.rows.values() if row.key in keys), key=_order(jobs))
    return Results(rows, all(job.key in file.rows for job in jobs), why)


def _order(jobs: Sequence[Job]) -> Callable[[RunResult], int]:
    places = {job.key: i for i, job in enumerate(jobs)}
    return lambda row: places[row.key]
