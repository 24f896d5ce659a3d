"""Tokens that are read after kept ones: the states are those of a pass over the whole row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import SMALL, make_model
from torch import Tensor

from burnish.core.roles import roles
from burnish.forward.kept_keys import Kept, fork, read_on
from burnish.models.build import build
from burnish.models.known_models import resolve
from burnish.models.model import Model

KINDS: dict[str, dict[str, Any]] = {"Llama": {}, "Qwen2": {}, "Qwen3": {}, "Mistral": {"sliding_window": 6}}


@pytest.fixture(scope="module", params=[*KINDS, "tiny"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Random models of several kinds; tiny, whose layers C kernels compute where they can be built."""
    path = resolve("tiny")
    if request.param in KINDS:
        path = make_model(tmp_path_factory.mktemp("kept"), kind=request.param, **KINDS[request.param])
    return build(roles(), path, SMALL, device="cpu")["policy"]


def states(model: Model, row: Tensor) -> Tensor:
    """[T - 1, H]: the states after each token but the first, from one pass over the row."""
    with torch.no_grad():
        return model.outputs([row], [torch.arange(len(row)) > 0], {"state"})["state"]


def test_states_are_those_of_whole_rows(model: Model) -> None:
    dice = torch.Generator().manual_seed(0)
    rows = [torch.randint(4, 200, (length,), generator=dice) for length in (17, 5, 11)]
    kept, runner = [Kept() for _ in rows], model.working.current()
    for first, last in ((0, 4), (4, 5), (5, 9), (9, 17)):  # some rows have no new tokens at the end
        found = read_on(runner, kept, [row[first:last] for row in rows])
        for row, mine in zip(rows, found, strict=True):
            assert torch.allclose(mine, states(model, row[:last])[-1], atol=1e-4)
    candidates = torch.tensor([[7, 8, 9], [9, 7, 7], [4, 5, 6]])
    ways = fork(runner, kept, candidates)
    for row, own, tokens in zip(rows, ways, candidates, strict=True):
        for mine, token in zip(own, tokens, strict=True):
            assert torch.allclose(mine, states(model, torch.cat([row, token[None]]))[-1], atol=1e-4)
    again = fork(runner, kept, candidates)
    assert torch.equal(ways, again), "nothing of the candidates was kept"


def test_copies_go_on_apart(model: Model) -> None:
    row, runner = torch.arange(20, 27), model.working.current()
    first = Kept()
    read_on(runner, [first], [row])
    second = first.copy()
    read_on(runner, [first, second], [torch.tensor([5]), torch.tensor([6, 7])])
    assert first.begins(torch.cat([row, torch.tensor([5, 9])])) and not first.begins(row)
    assert first.state is not None and second.state is not None
    assert torch.allclose(first.state, states(model, torch.cat([row, torch.tensor([5])]))[-1], atol=1e-4)
    assert torch.allclose(second.state, states(model, torch.cat([row, torch.tensor([6, 7])]))[-1], atol=1e-4)
