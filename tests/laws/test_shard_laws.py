"""Ranks that divide gradients and optimiser states (--shard states) learn what one process learns."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from conftest import SMALL, build_cast, build_method, credited, doubled, run_ranks
from guards import guards
from torch import Tensor

from burnish.core.step import Step
from burnish.learn.learn import accumulate, apply_gradient
from burnish.models.build import Models
from burnish.models.ranks import Ranks
from burnish.models.sharded_states import whole_states

pytestmark = guards("models", "learn", "core", "forward", "distributed")
SECONDS = 240.0  # for all methods of one batch
SETTINGS = replace(SMALL, token_budget=60)  # several passes, of which the ranks have different numbers
# Given replies, pairs, groups, critics, several phases, distillation, a reward model, adapters of none.
KINDS = ("sft", "dpo", "grpo", "ppo", "archer", "opd", "reward_model", "dapo")


def alone(models: Models) -> None:
    """These models as those of one process."""
    models.ranks = Ranks()
    for model in models:
        model.ranks = models.ranks
        if model.trainer is not None:
            model.trainer.ranks = models.ranks


def gradients(model: Any) -> dict[str, Tensor]:
    """A model's gradient, whole, by parameter."""
    optimiser = model.optimiser
    if optimiser.states is None:
        return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in optimiser.named.items()}
    own = {f"g/{name}": p.grad for name, p in optimiser.moved.items() if p.grad is not None}
    parts = [
        dict(zip(names, tensors, strict=True)) for names, tensors in model.ranks.gather_values([*own], [*own.values()])
    ]
    whole = whole_states(optimiser.named, parts)
    return {
        name: whole[f"g/{name}"].view(p.shape) if f"g/{name}" in whole else torch.zeros_like(p)
        for name, p in optimiser.named.items()
    }


def learned(name: str, model: Path, teacher: Path, sharded: bool) -> list[dict[str, Tensor]]:
    """Gradients and new weights of each phase, in fp64, from the same groups in one process and on ranks."""
    settings = replace(SETTINGS, shard="states" if sharded else "off", master_weights="float32")
    method = build_method(name, teacher)
    made, source = [], doubled(build_cast(method, model, SETTINGS))
    alone(source)
    models = doubled(build_cast(method, model, settings))
    if not sharded:
        alone(models)
    for phase, groups, now in credited(method, source):
        step = Step(now.clock, models, settings)
        for trainee in phase.learn.trainees:
            models[trainee].optimiser.zero()
        if not accumulate(groups, phase.learn, step):
            continue
        for trainee in phase.learn.trainees:
            made.append(gradients(models[trainee]))
        apply_gradient(phase.learn, step)
        for trainee in phase.learn.trainees:
            made.append({name: p.detach().clone() for name, p in models[trainee].module.named_parameters()})
    return made


def largest_difference(name: str, model: Path, teacher: Path) -> float:
    """Of gradients and weights, relative to the largest number of each tensor."""
    most = 0.0
    for one, two in zip(*(learned(name, model, teacher, sharded) for sharded in (False, True)), strict=True):
        assert one.keys() == two.keys()
        for key, value in one.items():
            most = max(most, float((value - two[key]).abs().max() / value.abs().max().clamp_min(1e-9)))
    return most


def work(rank: int, world: int, names: list[str], model: Path, teacher: Path, folder: Path) -> None:
    torch.set_num_threads(1)
    meeting = f"file://{folder / 'meeting'}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    found = {name: largest_difference(name, model, teacher) for name in names}
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_divided_gradients_and_states_are_those_of_one_process(
    world: int, small_model: Path, other_model: Path, tmp_path: Path
) -> None:
    for name in KINDS:
        build_method(name, other_model)
    run_ranks(work, (world, list(KINDS), small_model, other_model, tmp_path), world, SECONDS)
    for rank in range(world):
        for name, difference in json.loads((tmp_path / f"{rank}.json").read_text()).items():
            assert difference < 1e-9, (rank, name, difference)
