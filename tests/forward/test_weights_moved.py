"""Every way of changing weights is noticed by what is derived from them: weight layouts, cached activations, compute
copies.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import torch
from conftest import SMALL, make_model
from torch import nn

from burnish.core.roles import ema, roles, snapshot
from burnish.core.step import Notes, Step
from burnish.core.types import Clock
from burnish.engine.local import Request
from burnish.forward.accelerate import kernels
from burnish.forward.outputs import outputs
from burnish.forward.runner import runner_of
from burnish.models import loader, mixed_precision
from burnish.models.build import Models, build
from burnish.models.load import load_model
from burnish.models.model import Model
from burnish.models.snapshot import SnapshotModels
from burnish.zoo.trpo import _Weights

ROW = torch.randint(5, 60, (14,), generator=torch.Generator().manual_seed(0))
MASK = torch.arange(len(ROW)) > 4


@pytest.fixture(params=["CPU kernels", "bf16 copy"])
def models(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Models:
    """A policy and its followers, with kernels for a CPU, or as on a GPU with compute copies."""
    if request.param == "bf16 copy":
        monkeypatch.setattr(mixed_precision, "on_gpu", lambda device: True)
        monkeypatch.setattr(
            loader,
            "load_model",
            lambda path, outputs, device, native=True, *rest: load_model(path, outputs, device, False, *rest),
        )
    elif kernels() is None:
        pytest.skip("the package of kernels is absent")
    members = roles(average=ema("policy", 0.5), old=snapshot("policy"))
    return build(members, make_model(tmp_path, head_dim=32), SMALL, device="cpu")


def use(model: Model) -> None:
    """Sample and compute log-probs, so that everything that is derived from the weights exists."""
    if model.working.copy is model.module:
        model.generate([Request(ROW[:5], key, 4) for key in range(3)])
    model.outputs([ROW], [MASK], {"logp"})


def up_to_date(model: Model) -> bool:
    """Whether the model computes with its present weights: as a fresh copy of it does."""
    if model.working.copy is not model.module:
        computes = dict(model.working.weights().named_parameters())
        return all(torch.equal(p.to(torch.bfloat16), computes[name]) for name, p in model.module.named_parameters())
    found = model.outputs([ROW], [MASK], {"logp"})["logp"]
    wanted = outputs(runner_of(copy.deepcopy(model.module)), [ROW], [MASK], {"logp"})["logp"]
    return torch.equal(found, wanted)


@torch.no_grad()
def scale(module: nn.Module, by: float) -> None:
    for p in module.parameters():
        p.mul_(by)


@contextmanager
def by_optimiser(models: Models) -> Iterator[Model]:
    policy = models["policy"]
    use(policy)
    for p in policy.module.parameters():
        p.grad = torch.ones_like(p)
    policy.optimiser.step(Clock(0, 3))
    yield policy


def by_publish(follower: str) -> Callable[[Models], AbstractContextManager[Model]]:
    @contextmanager
    def change(models: Models) -> Iterator[Model]:
        use(models[follower])
        scale(models["policy"].module, 1.5)
        models["policy"].weights_moved()
        models.publish(("policy",), Clock(0, 3), Notes())
        yield models[follower]

    return change


@contextmanager
def by_loading_a_snapshot(models: Models) -> Iterator[Model]:
    behind = SnapshotModels(models, {"model:policy.generate"})
    use(behind.cast_of(behind.take(), Notes())["policy"])
    scale(models["policy"].module, 1.5)
    models["policy"].weights_moved()
    models.publish(("policy",), Clock(0, 3), Notes())
    yield behind.cast_of(behind.take(), Notes())["policy"]


@contextmanager
def by_a_trust_region(models: Models) -> Iterator[Model]:
    policy = models["policy"]
    use(policy)
    weights = _Weights(Step(Clock(0, 3), models, SMALL), "policy")
    with weights.moved_by(0.1 * torch.ones(sum(p.numel() for p in weights.parameters))):
        yield policy


@contextmanager
def by_a_trust_region_and_back(models: Models) -> Iterator[Model]:
    with by_a_trust_region(models) as policy:
        use(policy)
    yield policy


CHANGES = {
    "an optimiser's step": by_optimiser,
    "an exponential moving average": by_publish("average"),
    "a snapshot that is renewed": by_publish("old"),
    "a copy of earlier weights": by_loading_a_snapshot,
    "a step of a trust region": by_a_trust_region,
    "a step that is taken back": by_a_trust_region_and_back,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_weights_is_noticed(name: str, models: Models) -> None:
    with CHANGES[name](models) as model:
        assert up_to_date(model)


def test_the_check_sees_weights_that_moved_in_silence(models: Models) -> None:
    """Without the signal nothing is computed anew: what the tests above would find."""
    use(models["policy"])
    scale(models["policy"].module, 1.5)
    assert not up_to_date(models["policy"])
    models["policy"].weights_moved()
    assert up_to_date(models["policy"])
