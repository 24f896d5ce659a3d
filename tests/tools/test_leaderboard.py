"""scripts/leaderboard.py: every method has jobs, the jobs are valid, and equal starting weights are evaluated once."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from burnish.compare import measure
from burnish.compare.budget import parse
from burnish.compare.helpers import needs
from burnish.compare.job import Job
from burnish.compare.results import ResultsFile
from burnish.compare.single import run_job
from burnish.config.options import configure
from burnish.methods.table import METHODS, find

SCRIPT = Path(__file__).parents[2] / "scripts" / "leaderboard.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("leaderboard", SCRIPT)
    assert spec and spec.loader
    found = sys.modules["leaderboard"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    found.load_all()
    return found


def test_every_method_has_its_jobs(script: ModuleType, tmp_path: Path) -> None:
    """A method has all three tasks or its only one, with every seed, and helper models where it needs them."""
    asked = argparse.Namespace(work=tmp_path, device="cpu", seeds=2)
    store = ResultsFile(tmp_path / "results.json")
    jobs = script.jobs(list(METHODS), parse(script.BUDGET), asked, store)
    assert {job.method for job in jobs} == set(METHODS)
    assert len({job.key for job in jobs}) == len({job.out for job in jobs}) == len(jobs)
    for name, entry in METHODS.items():
        mine = [job for job in jobs if job.method == name]
        assert {job.seed for job in mine} == {0, 1}
        assert len({job.task for job in mine}) in (1, len(script.TASKS))
        given = {"task": mine[0].task, "seed": 0, "out": mine[0].out, "steps": 1}
        configure(find(name), name, {**mine[0].flags, **given})
        assert set(needs(entry)) <= set(mine[0].flags)
    assert [job.seed for job in jobs] == sorted(job.seed for job in jobs)  # a seed of everybody before the next seed


def test_runs_that_begin_alike_are_measured_at_the_start_once(
    small_model: Path, other_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two methods from the same weights share the first point; other weights, or another task, have their own."""
    asked: list[tuple[str, int]] = []
    evaluate = measure.evaluate

    def counted(models: object, source: object, settings: object, **more: object) -> object:
        asked.append((source.name, more["tasks"]))  # type: ignore[attr-defined, arg-type]
        return evaluate(models, source, settings, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(measure, "evaluate", counted)
    monkeypatch.setattr(measure, "_STARTS", {})
    shared = {"model": str(small_model), "prompts": 2, "max_new_tokens": 6, "device": "cpu", "save_every": 0}
    one = Job("a", "sft", shared, "sort", 0, parse("steps=1"), str(tmp_path / "a"), tasks=6, replies=1, points=1)
    found = [
        run_job(job, lambda *_: None)
        for job in (
            one,
            replace(one, method="raft", flags={**shared, "n": 2}, seed=1, out=str(tmp_path / "b")),
            replace(one, task="add", out=str(tmp_path / "c")),
            replace(one, flags={**shared, "model": str(other_model)}, out=str(tmp_path / "d")),
        )
    ]
    starts, ends = [tasks for _, tasks in asked].count(3), [tasks for _, tasks in asked].count(6)
    assert (starts, ends) == (3, 4)
    assert found[0].curve[0] == found[1].curve[0]
