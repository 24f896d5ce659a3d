"""Runs of two ranks, each with another option that divides or shrinks states: resumed bit for bit, and measured as one
process measures."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from conftest import run_ranks
from guards import guards
from runs import halted_after

import burnish
from burnish.api.train import resume
from burnish.checkpoint.diff import differences
from burnish.models.optimiser import MASTER_WEIGHTS, OPTIMISERS, SHARDS

pytestmark = [
    pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo"),
    guards(
        "models/ranks.py",
        "models/shards.py",
        "models/sharded_states.py",
        "models/optimiser.py",
        "core/sharded_pass.py",
        "evals/heldout.py",
        "learn/learn.py",
    ),
]
States = tuple[str, str, str]  # --shard, --optimiser, --master-weights
SOME: list[States] = [("optimiser", "adamw8bit", "split"), ("states", "adamw16bit", "float32")]
EVERY = sorted(product(SHARDS, OPTIMISERS, MASTER_WEIGHTS))
RUN: dict[str, Any] = {"task": "sort", "prompts": 3, "steps": 4, "save_every": 2, "lr": 1e-2, "device": "cpu"}
MEASURED: dict[str, Any] = {**RUN, "steps": 1, "eval_tasks": 5, "eval_measure": "loss", "save_every": 0}


def options_of(states: States) -> dict[str, str]:
    return dict(zip(("shard", "optimiser", "master_weights"), states, strict=True))


def work(rank: int, every: list[States], measured: list[str], model: Path, folder: Path) -> None:
    """One rank: for each kind of states a run, and its second half again from the checkpoint in the middle."""
    torch.set_num_threads(1)
    meeting = f"file://{folder / 'meeting'}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=2, timeout=timedelta(seconds=120))
    for method in measured:
        burnish.train(method, model=str(model), out=str(folder / method), **MEASURED)
    for states in every:
        whole, halted = (folder / f"{'-'.join(states)}-{end}" for end in ("whole", "halted"))
        try:
            burnish.train("sft", model=str(model), out=str(whole), eval_tasks=0, **RUN, **options_of(states))
        except ValueError as error:
            (folder / f"{'-'.join(states)}.json").write_text(json.dumps({"refused": str(error)}))
            continue
        dist.barrier()
        if not rank:
            halted_after(2, whole, halted)
        dist.barrier()
        resume(halted)
        if not rank:
            (folder / f"{'-'.join(states)}.json").write_text(json.dumps({"differ": differences(whole, halted)}))
    dist.barrier()
    dist.destroy_process_group()


def outcomes(every: list[States], folder: Path) -> dict[States, Any]:
    return {states: json.loads((folder / f"{'-'.join(states)}.json").read_text()) for states in every}


def test_a_resumed_run_has_the_moments_of_its_own_rank(small_model: Path, tmp_path: Path) -> None:
    """And held-out losses, of tokens and of pairs, are those of one process: each rank measures a part of the rows."""
    measured = ["sft", "dpo"]
    run_ranks(work, (SOME, measured, small_model, tmp_path), 2, 200.0)
    assert outcomes(SOME, tmp_path) == {states: {"differ": []} for states in SOME}
    for method in measured:
        burnish.train(method, model=str(small_model), out=str(tmp_path / f"{method}-alone"), **MEASURED)
        both, alone = (
            json.loads((tmp_path / name / "evaluation.json").read_text()) for name in (method, f"{method}-alone")
        )
        for when in ("before", "after"):
            assert alone[when]["value"]["mean"] > 0 and both[when]["name"] == alone[when]["name"]
            assert both[when]["value"] == pytest.approx(alone[when]["value"], rel=1e-4)
            assert both[when]["also"] == pytest.approx(alone[when]["also"], rel=1e-3, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("shard", SHARDS)
def test_every_kind_of_states_resumes(shard: str, small_model: Path, tmp_path: Path) -> None:
    every = [states for states in EVERY if states[0] == shard]
    run_ranks(work, (every, [], small_model, tmp_path), 2, 280.0)
    for states, found in outcomes(every, tmp_path).items():
        assert found == {"differ": []} or "refused" in found, (states, found)
