"""Rows as trees: no token that follows the same tokens twice, and every row found again."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import numbers
from guards import guards

from burnish.core.randomness import rng
from burnish.forward.accelerate import cpu_library
from burnish.forward.outputs import outputs
from burnish.forward.packing import families_of, pack
from burnish.forward.prefix_tree import Tree
from burnish.forward.runner import runner_of
from burnish.models.known_models import TINY
from burnish.models.load import load_model

pytestmark = guards("forward", "kernels")

LIBRARY = cpu_library()
CPU = torch.device("cpu")


def some_rows(seed: int, letters: int) -> tuple[list[torch.Tensor], list[int]]:
    """Replies of few letters to a few prompts: many begin alike, some are the same, some are the
    beginnings of others.
    """
    dice = rng("tree", seed, letters)
    rows, asked = [], []
    for prompt in range(3):
        beginning = [prompt + 1, *(dice.randrange(letters) for _ in range(dice.randrange(4)))]
        for _ in range(dice.randrange(1, 9)):
            rows.append(torch.tensor([*beginning, *(dice.randrange(letters) for _ in range(dice.randrange(1, 7)))]))
            asked.append(len(beginning))
    return rows, asked


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("letters", [1, 2, 5])
def test_nothing_is_there_twice_and_every_row_is_found(seed: int, letters: int) -> None:
    rows, asked = some_rows(seed, letters)
    packed = pack(numbers(rows), asked, CPU)
    families = families_of(numbers(rows), asked)
    beginnings = {
        (f, tuple(rows[i][:k].tolist()))
        for f, row in enumerate(families)
        for i in row
        for k in range(1, len(rows[i]) + 1)
    }
    assert len(packed.tokens) == len(beginnings)
    for i, row in enumerate(rows):
        at = packed.places(np.full(len(row), i), np.arange(len(row)))
        assert torch.equal(packed.tokens[at], row) and packed.positions[at].tolist() == list(range(len(row)))
        assert packed.ends()[i] == at[-1]


@pytest.mark.parametrize("seed", range(8))
def test_the_path_to_a_stretch_is_the_beginning_of_its_rows(seed: int) -> None:
    rows, asked = some_rows(seed, 2)
    packed = pack(numbers(rows), asked, CPU)
    tree = packed.tree
    assert tree is not None and tree.begins[-1] == len(tree.stretches)
    of = {}
    for i, row in enumerate(rows):
        for k, place in enumerate(packed.places(np.full(len(row), i), np.arange(len(row)))):
            of.setdefault(int(place), (i, k))
    for number, (first, _, parent) in enumerate(tree.stretches):
        row, depth = of[int(first)]
        assert packed.tokens[tree.paths[number]].tolist() == rows[row][:depth].tolist() and parent < number


def test_without_beginnings_nothing_is_shared() -> None:
    rows = [torch.tensor([1, 2, 3]), torch.tensor([1, 2, 3]), torch.tensor([1, 2])]
    packed = pack(numbers(rows), None, CPU)
    assert len(packed.tokens) == 8 and not packed.shared
    assert packed.tree is not None and packed.tree.stretches[:, 2].tolist() == [-1] * 3
    alike = Tree.alike(2, 3)
    assert alike.stretches.tolist() == [[0, 3, -1], [3, 6, -1]] and alike.begins.tolist() == [0, 1, 2]


@pytest.mark.skipif(isinstance(LIBRARY, str), reason=f"no kernels here: {LIBRARY}")
@pytest.mark.parametrize("letters", [2, 3])  # with few of them, stretches are short and there are many
@pytest.mark.parametrize("group", [2, 5, 30])
@pytest.mark.parametrize("longest", [9, 40])
def test_a_tree_has_the_gradient_of_its_rows(group: int, letters: int, longest: int) -> None:
    """In our kernels, in fp32: what is read once and forgotten where it should not be seen, against each row alone."""
    dice = torch.Generator().manual_seed(group)
    told = [4 + torch.randint(letters, (2 + 7 * k % longest,), generator=dice) for k in range(30)]
    told = [torch.cat([torch.tensor([100 + k // group]), row]) for k, row in enumerate(told)]
    masks = [torch.arange(len(row)) > 0 for row in told]
    weights = torch.randn(sum(int(mask.sum()) for mask in masks), generator=dice)
    model = load_model(TINY, 0, torch.device("cpu"))

    def gradient(groups: list[tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]]) -> torch.Tensor:
        model.zero_grad()
        for some, asked, by in groups:
            (outputs(runner_of(model), some, asked, {"logp"})["logp"] * by).sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    each = weights.split([int(mask.sum()) for mask in masks])
    alone = gradient([([row], [mask], by) for row, mask, by in zip(told, masks, each, strict=True)])
    together = gradient([(told, masks, weights)])
    assert (together - alone).norm() < 1e-5 * alone.norm()
