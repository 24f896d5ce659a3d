"""Several ranks share a run: rollout, score, model calls and rows are divided; the run is that of one process."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from conftest import SMALL, build_cast, build_method, run_ranks
from guards import guards

from burnish.core.loop import loop
from burnish.core.method import Method
from burnish.methods.table import METHODS
from burnish.run.pipeline import loop_as_set

WORLD = 2
PATIENCE = 240.0  # seconds for all methods of one batch
STEPS = 2
SETTINGS = replace(SMALL, token_budget=200)
# Given replies, pairs, groups, critics, trees, episodes, refills, reward models, a rollout with state, search.
KINDS = ("sft", "dpo", "grpo", "ppo", "dapo", "archer", "arpo", "online_dpo", "aepo", "gigpo", "best_of_n", "remax")


AHEAD = "grpo ahead"  # sampled two steps ahead of learning (--lag 2), in a thread of each rank


def outcome(name: str, model: Path, teacher: Path) -> dict[str, Any]:
    """The metrics of a few steps, and what the weights have become."""
    method, settings = build_method(name.split()[0], teacher), replace(SETTINGS, lag=2 if name == AHEAD else 0)
    models = build_cast(method, model, settings)
    steps = 2 * STEPS if settings.lag else STEPS
    found = [report.metrics for report in loop_as_set(method, models, settings, steps=steps)]
    weights = {m.name: sum(float(p.detach().double().abs().sum()) for p in m.module.parameters()) for m in models}
    return {"metrics": found, "weights": weights}


def moments(method: Method, model: Path) -> list[str]:
    """The parameters whose moments this rank holds after a step with --shard optimiser."""
    settings = replace(SETTINGS, shard="optimiser")
    models = build_cast(method, model, settings)
    list(loop(method, models, settings, steps=1))
    return sorted(
        key.partition("/")[2] for key in models["policy"].optimiser.state_dict() if key.startswith("exp_avg/")
    )


def work(rank: int, names: list[str], model: Path, teacher: Path, folder: Path) -> None:
    """One rank: run each method together with the others, and write what came of it. An error is an outcome, too."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'meeting'}",
        rank=rank,
        world_size=WORLD,
        timeout=timedelta(seconds=60),
    )
    for name in names:
        try:
            made = outcome(name, model, teacher)
        except ValueError as error:
            made = {"error": str(error)}
        (folder / f"{name}-{rank}.json").write_text(json.dumps(made))
    (folder / f"moments-{rank}.json").write_text(json.dumps(moments(build_method("grpo", teacher), model)))
    dist.barrier()
    dist.destroy_process_group()


def together(names: list[str], model: Path, teacher: Path, folder: Path) -> None:
    """Run the methods on WORLD ranks. The models that they need are made before, not by all ranks at once."""
    for name in names:
        build_method(name.split()[0], teacher)
    run_ranks(work, (names, model, teacher, folder), WORLD, PATIENCE)


def compare(name: str, model: Path, teacher: Path, folder: Path) -> None:
    """Both ranks have the same numbers bit for bit, and those of one process up to rounding."""
    shared = [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in range(WORLD)]
    for other in shared[1:]:
        assert repr(other) == repr(shared[0]), "the ranks differ"
    try:
        alone = json.loads(json.dumps(outcome(name, model, teacher)))
    except ValueError as error:
        assert shared[0] == {"error": str(error)}
        return
    assert "error" not in shared[0], shared[0]
    for now, then in zip(shared[0]["metrics"], alone["metrics"], strict=True):
        assert now.keys() == then.keys()
        for key, value in then.items():
            if _undecided(key, then):
                continue
            near = math.isclose(now[key], value, rel_tol=2e-3, abs_tol=2e-4)
            assert near, f"step {then['step']}: {key} is {now[key]} on {WORLD} ranks, {value} in one process"
    for key, value in alone["weights"].items():
        assert math.isclose(shared[0]["weights"][key], value, rel_tol=1e-5), f"the weights of {key}"


def _undecided(key: str, metrics: dict[str, float]) -> bool:
    """Whether a metric counts the signs of margins that are zero but for rounding."""
    prefix, _, last = key.rpartition("/")
    return last in ("accuracy", "ties") and abs(metrics.get(f"{prefix}/margin", 1.0)) < 1e-4


@guards("compose", "core", "credit", "distributed", "draw", "engine", "forward")
@guards("learn", "models", "rollout", "score", "select")
def test_two_ranks_run_as_one_process(small_model: Path, other_model: Path, tmp_path: Path) -> None:
    """One method of each kind, also sampled ahead; with --shard optimiser each parameter's moments are on one rank."""
    if not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    together([*KINDS, AHEAD], small_model, other_model, tmp_path)
    for kind in (*KINDS, AHEAD):
        compare(kind, small_model, other_model, tmp_path)
    held = [json.loads((tmp_path / f"moments-{rank}.json").read_text()) for rank in range(WORLD)]
    weights = dict(build_cast(build_method("grpo", other_model), small_model)["policy"].module.named_parameters())
    assert sorted(sum(held, [])) == sorted(weights), "each parameter has one owner"
    sizes = [sum(weights[name].numel() for name in names) for names in held]
    assert max(sizes) < 0.75 * sum(sizes)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, len(METHODS), 16))
def test_every_method_runs_on_two_ranks(first: int, small_model: Path, other_model: Path, tmp_path: Path) -> None:
    names = sorted(METHODS)[first : first + 16]
    together(names, small_model, other_model, tmp_path)
    wrong = {}
    for name in names:
        try:
            compare(name, small_model, other_model, tmp_path)
        except AssertionError as error:
            wrong[name] = str(error).splitlines()[0]
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())
