"""The average of two models, and PPO that is held near it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, credited, doubled, make_model
from test_learn import TASK, gradients

from burnish.core.roles import frozen, roles, soup
from burnish.methods.policy import ppo
from burnish.models.build import build
from burnish.zoo.salsa import salsa


def test_a_soup_by_hand(small_model: Path, other_model: Path) -> None:
    """Every weight of a soup of share 1/4 is 3/4 of the first and 1/4 of the second."""
    parts = roles(a=frozen(str(small_model)), b=frozen(str(other_model)), mix=soup("base", str(other_model), 0.25))
    models = build(parts, small_model, SMALL, device="cpu")
    for a, b, mix in zip(*(models[name].module.parameters() for name in ("a", "b", "mix")), strict=True):
        assert torch.allclose(mix, 0.75 * a + 0.25 * b, atol=1e-7)


def test_salsa_without_the_other_model_is_ppo(small_model: Path, other_model: Path) -> None:
    found = []
    for built in (salsa(TASK, other=str(other_model), share=0.0, n=2, updates=1), ppo(TASK, n=2, updates=1)):
        models = doubled(build_cast(built, small_model))
        found += [gradients(models, phase.learn, groups, step) for phase, groups, step in credited(built, models)]
    assert torch.allclose(found[0], found[1], rtol=1e-9, atol=1e-12)


def test_models_of_two_kinds_have_no_average(small_model: Path, tmp_path: Path) -> None:
    wider = make_model(tmp_path / "wider", hidden_size=64)
    with pytest.raises(ValueError, match="two models cannot be averaged"):
        build(roles(mix=soup("base", str(wider))), small_model, SMALL, device="cpu")
