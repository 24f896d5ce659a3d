"""A whole comparison: run what is missing, then write the leaderboard as data and as a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from burnish.compare.display import Display
from burnish.compare.job import Found, Job
from burnish.compare.pool import Pool, workers_and_gpus
from burnish.compare.store import Store


@dataclass(frozen=True)
class Ran:
    """The results there are, and whether they are all there."""

    rows: list[Found]
    whole: bool
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
    heard: Callable[[Found], None] = lambda found: None,
) -> Ran:
    """The jobs that have no result yet, on all cores or GPUs; results are in out/results.json as they come."""
    store = Store(out / "results.json")
    store.of(jobs[0].budget)
    missing = [job for job in jobs if not store.done(job.key)]
    why = ""
    if missing:
        many, gpus = workers_and_gpus(workers, device)

        def found(row: Found) -> None:
            display.found(row)
            store.add(row)
            heard(row)

        with Display(console, title, len(jobs), len(jobs) - len(missing)) as display:
            pool = display.follow(Pool(many, out / "logs", found, gpus))
            try:
                pool.run(missing, limit=limit)
            finally:
                store.save()
            why = pool.why
    wanted = {job.key for job in jobs}
    rows = sorted((row for row in store.rows.values() if row.key in wanted), key=_order(jobs))
    return Ran(rows, all(job.key in store.rows for job in jobs), why)


def _order(jobs: Sequence[Job]) -> Callable[[Found], int]:
    places = {job.key: i for i, job in enumerate(jobs)}
    return lambda row: places[row.key]
