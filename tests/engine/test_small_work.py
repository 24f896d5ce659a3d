"""What the host does once a step for all rows at a time, and what it spares itself."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from burnish.core.step import Settings
from burnish.engine.request import Request, limits_of, prompts_of
from burnish.forward.packing import JOINED_ALONE, joined, trues
from burnish.models.optimiser import Optimiser
from burnish.util.gc import gc_freezer
from burnish.util.tensors import NAN, constant


@pytest.mark.parametrize("most", [5, 3000, 2 * JOINED_ALONE])
def test_rows_are_joined_in_order_however_long_they_are(most: int) -> None:
    dice = random.Random(most)
    parts = [torch.randint(0, 9, (dice.choice([0, 1, dice.randrange(most)]),)) for _ in range(60)]
    assert np.array_equal(joined(parts), np.concatenate([part.numpy() for part in parts]))
    masks = [part > 4 for part in parts]
    flat, cuts = trues(masks, np.cumsum([len(mask) for mask in masks]))
    assert np.array_equal(flat, np.flatnonzero(np.concatenate([mask.numpy() for mask in masks])))
    assert np.diff(cuts).tolist() == [int(mask.sum()) for mask in masks]


def test_a_prompt_is_one_whichever_tensor_it_comes_in() -> None:
    one, same, other = torch.tensor([5, 6, 7]), torch.tensor([5, 6, 7]), torch.tensor([5, 6])
    requests = [Request(tokens, i, new) for i, (tokens, new) in enumerate([(one, 9), (other, 3), (same, 2), (one, 1)])]
    prompts, of = prompts_of(requests)
    assert [prompt.requests for prompt in prompts] == [[0, 2, 3], [1]]
    assert of == [prompts[0], prompts[1], prompts[0], prompts[0]]
    assert limits_of(requests, prompts, lambda length: 7 - length) == [4, 3, 2, 1]
    assert [(prompt.longest, prompt.needed) for prompt in prompts] == [(4, 3), (3, 1)]


def test_a_constant_is_made_once() -> None:
    assert constant(NAN, 3, torch.float32) is constant(NAN, 3, torch.float32)
    assert constant(NAN, 3, torch.float32).isnan().all()
    assert constant(True, 2, torch.bool).tolist() == [True, True] and constant(1, 2, torch.long).dtype == torch.long


@pytest.fixture
def thawed() -> Iterator[None]:
    """Nothing is frozen, as where a user calls burnish (conftest.py freezes what tests import)."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("thawed")
def test_what_a_run_keeps_is_searched_again_after_it() -> None:
    with pytest.raises(KeyError), gc_freezer() as freeze:
        assert gc.get_freeze_count() == 0
        freeze()
        assert gc.get_freeze_count() > 0
        raise KeyError
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("thawed")
def test_what_was_frozen_before_a_run_stays_frozen() -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    with gc_freezer() as freeze:
        made = [[] for _ in range(100)]
        freeze()
        assert gc.get_freeze_count() <= before, f"{len(made)} lists of the run are not frozen"
    assert gc.get_freeze_count() > 0


@pytest.mark.usefixtures("thawed")
def test_a_run_that_nobody_ends_is_ended_in_silence_when_python_exits(monkeypatch: pytest.MonkeyPatch) -> None:
    run = gc_freezer()
    run.__enter__()
    monkeypatch.setattr("burnish.util.gc.gc", None)  # as it may be then
    run.__exit__(None, None, None)


@pytest.mark.parametrize("clip", [0.0, 0.1, 1.0, 2.0, 2.0000005, 1e9])
@pytest.mark.parametrize("length", [0.0, 0.5, 2.0, torch.nan, torch.inf])
def test_a_gradient_is_clipped_to_the_bits_that_torch_clips_it_to(clip: float, length: float) -> None:
    ours, torchs = (torch.nn.Linear(3, 1) for _ in range(2))
    for model in (ours, torchs):
        model.weight.grad, model.bias.grad = torch.full((1, 3), length / 2), torch.full((1,), length / 2)
    said = Optimiser(ours, Settings(clip=clip)).clip()
    norm = torch.nn.utils.clip_grad_norm_(torchs.parameters(), clip or torch.inf)
    assert torch.equal(said, norm) or (said.isnan() and norm.isnan())
    for mine, other in zip(ours.parameters(), torchs.parameters(), strict=True):
        assert mine.grad is not None and other.grad is not None
        assert torch.equal(mine.grad.nan_to_num(7), other.grad.nan_to_num(7))
