"""The raw results of a study: one JSON file with all runs, and the hashes of the claim file that they were made by."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from burnish.compare.job import Job, RunResult
from burnish.compare.results import ResultsFile
from burnish.studies.measures import Runs
from burnish.studies.plan import DEV
from burnish.studies.study import Design, Study

FILE = "results.json"


@dataclass(frozen=True)
class Raw:
    """What a results file says. shas: of the claim file at each start, the first of them before the first run."""

    file: str
    runs: Runs
    shas: tuple[str, ...]
    quick: bool
    rates: dict[str, float]
    failures: tuple[RunResult, ...]
    seconds: float

    @property
    def seeds(self) -> int:
        """The most seeds that an arm has."""
        return max((len(rows) for by_task in self.runs.rows.values() for rows in by_task.values()), default=0)

    @property
    def count(self) -> int:
        return sum(len(rows) for by_task in self.runs.rows.values() for rows in by_task.values())


def open_results(study: Study, out: Path, quick: bool) -> ResultsFile:
    """The results of a folder, with the claim file's hash added to them."""
    file = ResultsFile(out / FILE)
    about = file.about
    if about and about.get("study") != study.name:
        raise ValueError(f"{out} holds the study {about.get('study')!r}, not {study.name!r}; choose another --out")
    if about and bool(about.get("quick")) != quick:
        raise ValueError(f"{out} holds the {'quick' if about.get('quick') else 'full'} study; choose another --out")
    shas = [str(sha) for sha in _listed(about.get("claim_file"))]
    if not shas or shas[-1] != study.sha:
        shas.append(study.sha)
    file.about = {**about, "study": study.name, "quick": quick, "claim_file": shas}
    return file


def check_same(file: ResultsFile, jobs: Iterable[Job], out: Path) -> None:
    """Raise ValueError where a finished run was made with other options than the claim file has now."""
    for job in jobs:
        row = file.rows.get(job.key)
        if row is None or not row.done:
            continue
        changed = [key for key in {*row.flags, *job.flags} if _of(row, key, out) != _shown(job.flags.get(key), out)]
        changed = [key for key in changed if key != "device"]
        if changed or row.budget != job.budget:
            what = f"{changed[0]} of {job.label!r}" if changed else f"the budget of {job.label!r}"
            raise ValueError(
                f"{out} has results of an earlier version of the claim file, in which {what} was another; set it back, "
                "or choose another --out"
            )


def _of(row: RunResult, key: str, out: Path) -> object:
    return _shown(row.flags.get(key), out)


def _shown(value: object, out: Path) -> object:
    """A flag without the place of the folder, which says nothing of the run."""
    text = value.replace(f"{out}/", "") if isinstance(value, str) else value
    return json.loads(json.dumps(text))


def read_raw(file: Path, design: Design) -> Raw:
    """The raw results of a file, without the runs on development seeds."""
    if not file.is_file():
        raise ValueError(f"there are no results in {file}; burnish study run makes them")
    stored = ResultsFile(file)
    rows: dict[str, dict[str, list[RunResult]]] = {}
    done = sorted((row for row in stored.rows.values() if row.done), key=lambda row: row.seed)
    for row in (row for row in done if row.seed < DEV):
        rows.setdefault(row.label, {}).setdefault(row.task, []).append(row)
    rates = stored.about.get("rates")
    return Raw(
        _place(file),
        Runs(rows, tuple(task for task in design.on if any(task in by_task for by_task in rows.values()))),
        tuple(str(sha) for sha in _listed(stored.about.get("claim_file"))),
        bool(stored.about.get("quick")),
        {str(k): float(v) for k, v in rates.items()} if isinstance(rates, dict) else {},
        tuple(row for row in stored.rows.values() if not row.done),
        sum(row.spent.get("seconds", 0.0) for row in done),
    )


def _place(file: Path) -> str:
    """The file as it is named on a page: its last folders, without where they are."""
    parts = file.parts[-4:] if "benchmarks" in file.parts[-4:] else file.parts[-2:]
    return "/".join(parts)


def compact(file: Path, out: Path, *, curves: bool, seeds: int) -> None:
    """Write the results anew with what a verdict needs alone: no flags, no legs, and of curves their values.

    curves: keep which held-out tasks were right at each point, too (the measure `fall`)
    seeds: keep the runs of so many seeds, and those on development seeds
    """
    stored = ResultsFile(file)
    out.unlink(missing_ok=True)
    target = ResultsFile(out, stored.about)
    for row in stored.rows.values():
        if seeds <= row.seed < DEV:
            continue
        marks = row.curve if curves else (*row.curve[:1], *(replace(mark, right="") for mark in row.curve[1:]))
        marks = tuple(replace(mark, at=round(mark.at), value=round(mark.value, 4)) for mark in marks)
        target.rows[row.key] = replace(row, flags={}, legs=(), curve=marks)
    target.save()


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []
