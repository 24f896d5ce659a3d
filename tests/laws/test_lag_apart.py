"""Sampling ahead in a subprocess: same schedule, replies and weight check as in one process."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, build_method
from guards import guards
from runs import halted_after
from test_lag import options_of

import burnish
from burnish.api.train import resume
from burnish.checkpoint.diff import differences
from burnish.core.loop import loop
from burnish.engine.local import LocalEngine
from burnish.engine.subprocess.engine import SubprocessEngine
from burnish.engine.subprocess.probe import NAME, WrongWeights
from burnish.run.pipeline import Pipeline

pytestmark = guards("run/pipeline.py", "models/snapshot.py", "engine/subprocess")


def ahead_of(pipeline: Pipeline) -> SubprocessEngine:
    """The engine apart that samples ahead."""
    engine = pipeline.snapshot._models["policy"].engine
    assert isinstance(engine, SubprocessEngine)
    return engine


def run(model: Path, engine: str, disturb: Any = None, **settings: Any) -> tuple[list[dict], list[torch.Tensor], Any]:
    """The metrics of five steps, the weights they end with, and the pipeline."""
    told = replace(SMALL, engine=engine, lr=1e-2, **settings)
    method = build_method("grpo", model)
    models = build_cast(method, model, told)
    pipeline = Pipeline(method, models, told)
    metrics = []
    for report in loop(method, models, told, steps=5, pipeline=pipeline):
        metrics.append(report.metrics)
        assert isinstance(models["policy"].engine, LocalEngine)  # evaluations and refills need no second worker
        if disturb is not None:
            disturb(report.clock.step, pipeline)
    return metrics, [p.detach().clone() for p in models["policy"].module.parameters()], pipeline


def kill(step: int, pipeline: Pipeline) -> None:
    process = ahead_of(pipeline).process
    if step == 1 and process is not None:
        os.kill(process.popen.pid, signal.SIGKILL)


@pytest.mark.parametrize("lag", (pytest.param(1, marks=pytest.mark.slow), 2))
def test_another_process_samples_ahead_what_this_one_would(lag: int, small_model: Path) -> None:
    """Bit for bit, though its worker is killed on the way; every order is proved, and the worker ends with the run."""
    here, weights, _ = run(small_model, "local", lag=lag)
    there, others, pipeline = run(small_model, "process", kill, lag=lag)
    assert all(NAME in metrics and metrics[NAME] < 2e-5 for metrics in there)
    assert [{k: v for k, v in m.items() if k != NAME} for m in there] == here
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))
    assert ahead_of(pipeline).restarts == 1 and ahead_of(pipeline).process is None
    assert here[-1]["staleness"] == lag


def test_weights_that_do_not_arrive_stop_the_run(small_model: Path) -> None:
    def keep_back(step: int, pipeline: Pipeline) -> None:
        ahead_of(pipeline).send = lambda: None  # type: ignore[method-assign]

    with pytest.raises(WrongWeights, match=r"does not run the trained weights: .* differ by [\d.e-]+ on average"):
        run(small_model, "process", keep_back, lag=1)


@pytest.mark.slow
def test_stop_and_resume_in_chunks(small_model: Path, other_model: Path, tmp_path: Path) -> None:
    """All at once: another process, ahead, a chunk a step."""
    straight = tmp_path / "straight"
    told = options_of("grpo", small_model, other_model, straight, lag=1, engine="process", chunk=3, eval_tasks=0)
    burnish.train("grpo", **told)
    halted = halted_after(2, straight, tmp_path / "halted")
    resume(halted)
    assert not differences(straight, halted)
