"""The bf16 copy that computes on a GPU, made on a CPU: it follows every update, and its gradients reach the weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL, make_model
from torch import nn

from burnish.core.types import Clock
from burnish.models import mixed_precision
from burnish.models.load import load_model
from burnish.models.mixed_precision import ComputeCopy
from burnish.models.optimiser import Optimiser


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[nn.Module, ComputeCopy]:
    monkeypatch.setattr(mixed_precision, "on_gpu", lambda device: True)
    monkeypatch.setattr(mixed_precision, "compile_layers", lambda model: None)
    model = load_model(make_model(tmp_path), 0, torch.device("cpu"), native=False)
    return model, ComputeCopy(model, frozen=False)


def same(model: nn.Module, copy: nn.Module) -> bool:
    theirs = dict(copy.named_parameters())
    return all(torch.equal(p.to(torch.bfloat16), theirs[name]) for name, p in model.named_parameters())


def test_the_copy_follows_every_update(made: tuple[nn.Module, ComputeCopy]) -> None:
    model, copies = made
    optimiser = Optimiser(model, SMALL)
    optimiser.on_step = copies.weights_moved
    assert same(model, copies.weights())
    for number in range(2):
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        before = [p.detach().clone() for p in model.parameters()]
        optimiser.step(Clock(number, 3))
        assert not any(torch.equal(p, was) for p, was in zip(model.parameters(), before, strict=True))
        assert same(model, copies.weights())
    with torch.no_grad():  # any other change, once it is signalled
        next(model.parameters()).add_(1.0)
    copies.weights_moved()
    assert same(model, copies.weights())


def test_gradients_of_the_copy_reach_the_weights(made: tuple[nn.Module, ComputeCopy]) -> None:
    """Joined projections learn as one; their parts get their own share. Two collections add up."""
    model, copies = made
    tokens = torch.randint(5, 60, (2, 12), generator=torch.Generator().manual_seed(0))

    def loss(of: nn.Module) -> torch.Tensor:
        return of(input_ids=tokens).logits.float().log_softmax(-1)[..., 7].mean()  # type: ignore[no-any-return]

    wanted = torch.autograd.grad(loss(model), list(model.parameters()))
    for times in (1, 2):
        loss(copies.weights()).backward()
        copies.collect()
        for (name, p), g in zip(model.named_parameters(), wanted, strict=True):
            assert p.grad is not None and p.grad.dtype == torch.float32, name
            assert (p.grad - times * g).norm() <= 0.05 * times * g.norm(), name  # bf16 has eight bits


def test_settled_gradients_keep_their_place_and_their_numbers(made: tuple[nn.Module, ComputeCopy]) -> None:
    model, copies = made
    first = next(model.parameters())
    first.grad = torch.full_like(first, 3.0)
    copies.settle()
    places = [p.grad.data_ptr() for p in model.parameters() if p.grad is not None]
    assert len(places) == len(list(model.parameters())) and bool((first.grad == 3.0).all())
    assert not any(bool(p.grad.any()) for p in list(model.parameters())[1:] if p.grad is not None)
    for p in model.parameters():
        p.grad = None
    copies.settle()
    assert [p.grad.data_ptr() for p in model.parameters() if p.grad is not None] == places
    assert not bool(first.grad.any())  # type: ignore[union-attr]
