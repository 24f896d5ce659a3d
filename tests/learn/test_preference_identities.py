"""What preference methods become when their new idea is switched off: the same gradient on the same batch."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, coin, credited, doubled
from gradients import gradient
from torch import Tensor

from burnish.methods.table import METHODS
from burnish.tasks.data import Dataset
from burnish.tasks.source import Source
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded

OFFLINE = {"beta": 0.3}
# (method, options, what it is then, options of that)
SAME: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("f_dpo", {**OFFLINE, "divergence": "reverse_kl"}, "dpo", OFFLINE),
    ("h_dpo", {**OFFLINE, "alpha": 1.0}, "dpo", OFFLINE),
    ("rdpo", {**OFFLINE, "eps": 0.0}, "dpo", OFFLINE),
    ("cdpo", {**OFFLINE, "eps": 0.0}, "dpo", OFFLINE),
    ("cdpo", {**OFFLINE, "eps": 0.2}, "dpo", {**OFFLINE, "label_smoothing": 0.2}),
    ("rpo", {**OFFLINE, "eta": 0.0}, "dpo", OFFLINE),
    ("vpo_offline", {**OFFLINE, "alpha": 0.0}, "dpo", OFFLINE),
    ("ld_dpo", {**OFFLINE, "alpha": 1.0}, "dpo", OFFLINE),
    ("ld_dpo", {**OFFLINE, "alpha": 1.0, "reference": "weighted"}, "dpo", OFFLINE),
    ("t_reg", {**OFFLINE, "alpha": 0.0}, "dpo", OFFLINE),
    ("self_supervised_po", {**OFFLINE, "gamma": 0.0}, "dpo", OFFLINE),
    ("tr_dpo", {**OFFLINE, "sync": 1000}, "dpo", OFFLINE),
    ("alphapo", {"alpha": 0.0, "beta": 2.0, "gamma": 1.0}, "simpo", {}),
    ("direct_preference_ppo", {"lam": 1.0, "scale": 0.5}, "simpo", {"beta": 2.0, "gamma": 0.0}),
    ("ipo_md", {"n": 4, "alpha": 0.0}, "online_ipo", {"n": 4}),
    ("vpo", {"n": 4, "alpha": 0.0}, "online_dpo", {"n": 4}),
    ("semi_online_dpo", {"n": 4, "sync": 1}, "online_dpo", {"n": 4}),  # in the first step, where both sample the start
    ("accelerated_po", {"n": 4, "sync": 1}, "semi_online_dpo", {"n": 4, "sync": 1}),  # until its first round ends
    ("inpo", {"n": 4, "share": 1.0, "eta": 0.1, "sync": 1}, "online_ipo", {"n": 4, "tau": 0.1}),
    (
        "mnpo",
        {"n": 4, "share": 1.0, "eta": 0.1, "sync": 1},
        "inpo",
        {"n": 4, "share": 1.0, "eta": 0.1, "sync": 1},
    ),
]


def slope(
    name: str, options: dict[str, Any], model: Path, prompts: int = 3, noise: float = 0.01, data: Source | None = None
) -> Tensor:
    """The gradient of a method on the batch of its first step, its policy moved away from its reference by noise."""
    method = METHODS[name].build(data or rewarded(source("sort"), coin), **options)
    settings = replace(SMALL, prompts=prompts)
    models = doubled(build_cast(method, model, settings))
    ((phase, groups, step), *_) = credited(method, models, settings)
    dice = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in models["policy"].module.parameters():
            p.add_(noise * torch.randn(p.shape, generator=dice, dtype=p.dtype))
    models["policy"].weights_moved()
    return gradient(groups, phase.learn, step, settings)


def assert_close(a: Tensor, b: Tensor) -> None:
    """Equal to 1e-5 of the gradient's size: the model is in fp64, but streams are in fp32."""
    assert float(a.norm()) > 1e-6
    assert float((a - b).norm() / a.norm()) < 1e-5


IDS = [f"{name}-{other}{i}" for i, (name, _, other, _) in enumerate(SAME)]


@pytest.mark.parametrize(
    ("name", "options", "other", "its"), SAME, ids=[f"{a}-{c}{i}" for i, (a, _, c, _) in enumerate(SAME)]
)
def test_it_is_the_other_method(
    name: str, options: dict[str, Any], other: str, its: dict[str, Any], small_model: Path
) -> None:
    assert_close(slope(other, its, small_model), slope(name, options, small_model))


def test_optimal_transport_between_one_pair_is_dpo(small_model: Path) -> None:
    assert_close(slope("dpo", OFFLINE, small_model, 1), slope("aot", OFFLINE, small_model, 1))


def test_unpaired_transport_between_one_good_and_one_bad_reply_is_dpo(small_model: Path) -> None:
    """At the policy that the partners were computed with, both halves add up to the slope of the pair's loss."""
    still = {"prompts": 1, "noise": 0.0}
    assert_close(slope("dpo", OFFLINE, small_model, **still), slope("aot_unpaired", OFFLINE, small_model, **still))


def test_trusting_every_label_is_dpo(small_model: Path) -> None:
    assert_close(slope("dpo", OFFLINE, small_model), slope("lcpo", {**OFFLINE, "reliability": 1 - 1e-12}, small_model))


def test_lipo_on_lists_of_two_is_a_multiple_of_dpo(small_model: Path) -> None:
    """psi = (3/4, 1/4) and ranks 1 and 2: lambda = (2^(3/4) - 2^(1/4)) (1/log 2 - 1/log 3) for every list."""
    rows = [{"prompt": f"say {i}", "responses": [f"no {i}", f"yes {i} {i}"], "scores": [0.0, 1.0]} for i in range(3)]
    multiple = (2**0.75 - 2**0.25) * (1 / math.log(2) - 1 / math.log(3))
    dpo, lipo = (slope(name, OFFLINE, small_model, data=Dataset(rows, heldout=0.0)) for name in ("dpo", "lipo"))
    assert_close(multiple * dpo, lipo)
