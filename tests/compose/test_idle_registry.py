"""Every registered method with its KL switched off: no reference, and the same training in every bit without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, arguments_for, build_cast, task_for

from burnish.compose.idle import without_idle_models
from burnish.core.loop import loop
from burnish.core.method import Method
from burnish.core.option import options_of
from burnish.methods.table import METHODS

NAMES = ("beta", "kl", "tau", "chi2", "hold", "beta1", "beta2", "beta_reasoning", "beta_knowledge")
OTHERS = {"tgdpo": ("alpha",)}  # coefficients of another name
# What methods need a model for although such coefficients are 0.
NEEDED = {
    "arena_learning": {"ref": "the DPO stage compares with it"},
    "ilql": {"ref": "it writes the replies", "target1": "targets of Q", "target2": "targets of Q"},
    "kdrl": {"teacher": "the loss compares with it; beta weights the reward"},
    "mc_returns": {"ref": "its logits are what Q changes"},
    "mixed_po": {"ref": "it writes the first part of replies"},
    "nash_ema": {"opponent": "it writes replies"},
    "nash_md": {"ref": "the opponent is a mixture with it"},
    "nlpo": {"mask": "it masks what is sampled"},
    "othink_mr1": {"ref": "its KL grows from beta to beta_end"},
    "tgdpo": {"ref": "the preference loss compares with it"},
    "trpa": {"ref": "the preference loss compares with it"},
}
ROUNDING = ("superhf",)  # without the KL the loss reads log-probs instead of all logits, which round differently
# One method for each way to hold to another model; the slow tests go through all.
KINDS = ("chi2_ppo", "nash_ema", "ppo", "reft", "reinforce_pp", "remax", "rloo", "rto", "self_debug", "superhf", "t1")


def coefficients(name: str) -> dict[str, Any]:
    """Arguments that switch off what holds a method to another model: coefficients, not shares, that may be 0."""
    found = options_of(METHODS[name].build)
    keys = [key for key in (*NAMES, *OTHERS.get(name, ())) if key in found]
    return {key: 0.0 for key in keys if found[key].at_least == 0 and found[key].at_most is None}


def built(name: str, teacher: Path) -> Method:
    return METHODS[name].build(task_for(name), **{**arguments_for(name, teacher), **coefficients(name)})


def read_only(method: Method) -> set[str]:
    return {name for name, role in method.models.items() if role.liveness != "trained"}


def after_two_steps(method: Method, base: Path, moved: str | None = None) -> list[torch.Tensor]:
    """The weights of the product; one model's weights can be moved before."""
    models = build_cast(method, base)
    if moved is not None:
        noise = torch.Generator().manual_seed(3)
        for p in models[moved].module.parameters():
            p.data.add_(0.1 * torch.randn(p.shape, generator=noise))
        models[moved].weights_moved()
    for _ in loop(method, models, SMALL, steps=2):
        pass
    return [p.detach() for p in models[method.product].module.parameters()]


SWITCHED = sorted(name for name in METHODS if coefficients(name))


@pytest.mark.parametrize("name", SWITCHED)
def test_only_what_is_needed_is_loaded(name: str, other_model: Path) -> None:
    method = built(name, other_model)
    assert read_only(without_idle_models(method)) == set(NEEDED.get(name, {}))


def test_the_list_has_the_methods_that_put_the_kl_into_the_reward(other_model: Path) -> None:
    """The test above would pass if no option were found."""
    dropped = {name for name in SWITCHED if len(without_idle_models(built(name, other_model)).models) < _models(name)}
    assert dropped >= {*KINDS, "grpo", "p3o", "salsa", "self_debug", "serl", "spo_chain", "ufo"}
    assert len(dropped) >= 40


def _models(name: str) -> int:
    return len(METHODS[name].build(task_for(name), **arguments_for(name, Path("tiny"))).models)


def same_training(name: str, base: Path, teacher: Path) -> None:
    """The product's weights, with the idle models moved away from the start so that their numbers are not 0."""
    left = without_idle_models(built(name, teacher))
    gone = sorted(set(built(name, teacher).models) - set(left.models))
    if not gone:
        pytest.skip(f"{name} has no idle model")
    found = after_two_steps(left, base)
    kept = after_two_steps(built(name, teacher), base, moved=gone[-1])
    close = torch.allclose if name in ROUNDING else torch.equal
    assert all(close(a, b) for a, b in zip(found, kept, strict=True))


@pytest.mark.parametrize("name", KINDS)
def test_every_bit_is_the_same(name: str, small_model: Path, other_model: Path) -> None:
    same_training(name, small_model, other_model)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*SWITCHED} - {*KINDS}))
def test_every_bit_is_the_same_for_all(name: str, small_model: Path, other_model: Path) -> None:
    same_training(name, small_model, other_model)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NEEDED))
def test_a_model_that_stays_changes_the_training(name: str, small_model: Path, other_model: Path) -> None:
    for model in NEEDED[name]:
        if built(name, other_model).models[model].liveness == "frozen":
            plain = after_two_steps(built(name, other_model), small_model)
            moved = after_two_steps(built(name, other_model), small_model, moved=model)
            assert any(not torch.equal(a, b) for a, b in zip(plain, moved, strict=True)), (
                f"{name} does not read {model}"
            )
