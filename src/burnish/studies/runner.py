"""Run a study: what it prepares, its learning rates, then wave after wave of runs. What is done is not done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from burnish.compare.comparison import Results, run_jobs
from burnish.compare.job import Job
from burnish.compare.results import ResultsFile
from burnish.recipes.maker import Maker
from burnish.recipes.recipe import parse as parse_recipe
from burnish.recipes.runner import Display, run_recipe
from burnish.studies.plan import Plan
from burnish.studies.results import check_same, open_results
from burnish.studies.study import Study


@dataclass(frozen=True)
class Asked:
    """What the command line says of a run. double: twice the seeds, once, for a study that is undecided."""

    quick: bool = False
    double: bool = False
    workers: int | None = None
    device: str = "auto"
    limit: float | None = None


@dataclass(frozen=True)
class Outcome:
    """Where the results are, and whether all runs are done."""

    complete: bool
    why: str = ""


def plan_of(study: Study, out: Path, asked: Asked) -> Plan:
    """The plan, checked before anything runs."""
    design = study.design(asked.quick)
    if asked.double:
        design = replace(design, seeds=2 * design.seeds)
    plan = Plan(study, design, out, asked.device)
    plan.check()
    return plan


def run_study(
    plan: Plan,
    asked: Asked,
    console: Console,
    makers: Mapping[str, Maker],
    display: Display,
    say: Callable[[str], None],
) -> Outcome:
    """Run what is missing; Ctrl-C or the time limit stops after the present steps, and the same command continues."""
    began, study = time.monotonic(), plan.study
    file = open_results(study, plan.out, asked.quick)
    file.save()
    if study.prepare:
        made = prepared(plan, makers, display, say)
        if made is None:
            return Outcome(False, "you asked to stop")
        plan = replace(plan, made=made)

    def left() -> float | None:
        return None if asked.limit is None else max(1.0, asked.limit - (time.monotonic() - began))

    if plan.tuned():
        jobs = plan.tuning()
        check_same(file, jobs, plan.out)
        ran = _run(jobs, plan, file, asked, console, left(), f"{study.name}, learning rates")
        if not ran.complete:
            return Outcome(False, ran.why)
        file.about = {**file.about, "rates": plan.rates(ran.rows)}
        file.save()
    waves = plan.waves(plan.rates(list(file.rows.values())))
    for number, jobs in enumerate(waves):
        check_same(file, jobs, plan.out)
        _forget_lost(file, jobs, waves[number + 1 :])
        part = f", part {number + 1} of {len(waves)}" if len(waves) > 1 else ""
        ran = _run(jobs, plan, file, asked, console, left(), f"{study.name}{part}")
        if not ran.complete:
            return Outcome(False, ran.why)
    return Outcome(True)


def _run(
    jobs: Sequence[Job],
    plan: Plan,
    file: ResultsFile,
    asked: Asked,
    console: Console,
    limit: float | None,
    title: str,
) -> Results:
    return run_jobs(
        jobs,
        plan.out,
        console,
        title=title,
        workers=asked.workers,
        device=asked.device,
        limit=limit,
        file=file,
    )


def _forget_lost(file: ResultsFile, jobs: Sequence[Job], later: Sequence[Sequence[Job]]) -> None:
    """Have a run made again whose model is gone, where a run without a result needs it."""
    needed = " ".join(str(job.to_json()) for wave in later for job in wave if not file.done(job.key))
    for job in jobs:
        model = f"{job.out}/model"
        if job.keep_model and file.done(job.key) and model in needed and not Path(model).is_dir():
            del file.rows[job.key]


def prepared(
    plan: Plan, makers: Mapping[str, Maker], display: Display, say: Callable[[str], None]
) -> dict[tuple[str, str], str] | None:
    """Run the stages of `prepare` once for each task, as a recipe; None where it was stopped."""
    made: dict[tuple[str, str], str] = {}
    for task in plan.design.on:
        name = "".join(c if c.isalnum() else "-" for c in task)
        folder = plan.out / "prepare" / name
        stored = {"model": plan.study.model, "task": task, "stages": dict(plan.study.prepare)}
        recipe = parse_recipe(stored, f"study {plan.study.name}: `prepare`", f"prepare-{name}")
        done = run_recipe(recipe, folder, makers, display=display, say=say, resumed=folder.exists())
        if done.stopped:
            return None
        made |= {(stage.name, task): str(folder / stage.product) for stage in done.stages if stage.product}
    return made
