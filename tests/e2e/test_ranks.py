"""Two processes share a batch over gloo: the gradients they add up are those of one process."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from conftest import SMALL, build_cast, build_method, credited, run_ranks
from guards import guards
from safetensors.torch import load_file, save_file
from torch import Tensor

from burnish.learn.learn import accumulate
from burnish.models.ranks import Ranks

pytestmark = guards("models/ranks.py", "core/sharded_pass.py", "distributed/launch.py")

WORLD = 2
SECONDS = 60
SMALL_BATCHES = replace(SMALL, token_budget=60)  # several micro-batches, so that each rank has some


def gradients(name: str, model: Path, ranks: Ranks) -> dict[str, Tensor]:
    """The gradients of a method's trainees on its own first batch, which is the same in every process."""
    method = build_method(name, model)
    models = build_cast(method, model, SMALL_BATCHES)
    found: dict[str, Tensor] = {}
    for phase, groups, step in credited(method, models, SMALL_BATCHES):
        models.ranks = ranks
        assert accumulate(groups, phase.learn, step)
        for trainee in phase.learn.trainees:
            weights = models[trainee].module.named_parameters()
            found |= {f"{trainee}/{key}": p.grad.clone() for key, p in weights if p.grad is not None}
    return found


def work(rank: int, names: list[str], model: Path, meeting: Path, out: Path) -> None:
    """One rank: join the others, work on its share, write what the sum came to."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=WORLD, timeout=timedelta(seconds=SECONDS)
    )
    for name in names:
        save_file(gradients(name, model, Ranks(rank, WORLD)), out / f"{name}-{rank}.safetensors")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def shared(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the gradients of both ranks, for a method whose unit is the token and one whose
    unit is the pair.
    """
    if not dist.is_gloo_available():
        pytest.skip("this torch has no gloo")
    out = tmp_path_factory.mktemp("ranks")
    arguments = (["sft", "dpo"], small_model, out / "meeting", out)
    run_ranks(work, arguments, WORLD, SECONDS)
    return out


@pytest.mark.parametrize("name", ["sft", "dpo"])
def test_two_processes_add_up_to_the_gradient_of_one(name: str, shared: Path, small_model: Path) -> None:
    alone = gradients(name, small_model, Ranks())
    scale = float(torch.cat([g.flatten() for g in alone.values()]).norm())
    assert scale > 0
    for rank in range(WORLD):
        together = load_file(shared / f"{name}-{rank}.safetensors")
        assert together.keys() == alone.keys()
        for key, gradient in alone.items():
            assert float((together[key] - gradient).norm()) <= 1e-6 * scale, f"{key} on rank {rank}"


@pytest.mark.parametrize("name", ["sft", "dpo"])
def test_neither_process_did_it_all(name: str, small_model: Path) -> None:
    """Without the sum, a rank's share is not the whole: the test above compares what it says."""
    alone, share = (gradients(name, small_model, ranks) for ranks in (Ranks(), Ranks(0, WORLD)))
    assert any(not torch.allclose(alone[key], share[key]) for key in share)
