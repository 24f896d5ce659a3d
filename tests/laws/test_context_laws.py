"""Ranks that divide the tokens of a pass (--context-ranks) learn what one process learns."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import build_method, make_model
from guards import guards
from test_full_shard_laws import SETTINGS, found_by, in_fp64, largest_difference

from burnish.config.options import Options
from burnish.core.roles import trained
from burnish.core.types import Drawn
from burnish.forward.context import ContextGroup, drawn_some
from burnish.models.build import build
from burnish.run.placement import check_context, check_shard_ranks

pytestmark = guards("models", "learn", "core", "forward", "distributed")
KINDS = ("sft", "grpo", "ppo")


def differences(names: list[str], model: Path, odd: Path, teacher: Path, width: int) -> dict[str, float]:
    in_fp64()
    found = {
        name: largest_difference(partial(build_method, name, teacher), model, SETTINGS, context=width) for name in names
    }
    make = partial(build_method, "grpo", teacher)
    found["repeated heads"] = largest_difference(make, odd, SETTINGS, context=width)
    whole = replace(SETTINGS, token_budget=4096, checkpoint_activations="recompute")
    found["recompute"] = largest_difference(make, model, whole, context=width)
    if width < torch.distributed.get_world_size():
        both = replace(whole, shard="states")
        found["states"] = largest_difference(make, model, both, context=width)
    return found


def too_many_heads(model: Path) -> str:
    try:
        build({"policy": trained()}, model, replace(SETTINGS, context_ranks=2), device="cpu")
    except ValueError as error:
        return str(error)
    return ""


def everything(model: Path, odd: Path, teacher: Path, three: Path) -> dict[str, Any]:
    return {"heads": too_many_heads(three), "differences": differences([*KINDS], model, odd, teacher, 2)}


def test_divided_tokens_learn_as_those_of_one_process(small_model: Path, other_model: Path, tmp_path: Path) -> None:
    """Packed rows, shared prompts, a critic; one head of keys and values, which two ranks repeat; recomputed layers."""
    odd = make_model(tmp_path / "odd", num_key_value_heads=1)
    three = make_model(tmp_path / "three", num_attention_heads=3, num_key_value_heads=1, hidden_size=36)
    for name in KINDS:
        build_method(name, other_model)
    found = found_by(2, tmp_path, everything, small_model, odd, other_model, three)
    for name, difference in found[0]["differences"].items():
        assert difference < 1e-9, (name, difference)
    for rank in found:
        assert rank["heads"] == (
            "--context-ranks is 2, and the model has 3 heads of attention, which 2 ranks cannot divide; use 3"
        )


@pytest.mark.slow
def test_two_groups_of_two_ranks(small_model: Path, other_model: Path, tmp_path: Path) -> None:
    odd = make_model(tmp_path / "odd", num_key_value_heads=1)
    for name in KINDS:
        build_method(name, other_model)
    found = found_by(4, tmp_path, differences, [*KINDS], small_model, odd, other_model, 2)
    for name, difference in found[0].items():
        assert difference < 1e-9, (name, difference)


@pytest.mark.parametrize(("count", "shares"), [(0, [0, 0, 0]), (2, [1, 1, 0]), (7, [3, 3, 1]), (9, [3, 3, 3])])
def test_shares_are_consecutive_and_whole(count: int, shares: list[int]) -> None:
    made = ContextGroup(0, 3, None).share(count)
    assert [part.stop - part.start for part in made] == shares
    assert [i for part in made for i in range(count)[part]] == list(range(count))


def test_how_tokens_were_drawn_is_divided_with_them() -> None:
    drawn = Drawn(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.5, 2.0]), [None, torch.tensor([4]), None])
    some = drawn_some(drawn, slice(1, 3))
    assert isinstance(some, Drawn) and some.allowed is not None and some.penalty is not None
    assert list(np.asarray(some.temperature)) == [2.0, 3.0] and list(some.penalty) == [1.5, 2.0]
    assert len(some.allowed) == 2 and some.allowed[1] is None
    assert drawn_some(0.7, slice(1, 3)) == 0.7


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ranks": 3, "context_ranks": 2}, "does not divide the 3 ranks"),
        ({"ranks": 6, "shard": "full", "shard_ranks": 4}, "--shard-ranks is 4, which does not divide the 6 ranks"),
        ({"ranks": 4, "shard_ranks": 2}, "--shard-ranks is for --shard full, but --shard is off"),
        ({"ranks": 4, "context_ranks": 2, "packed": False}, "--no-packed does not work with --context-ranks"),
        ({"ranks": 4, "context_ranks": 4, "exact": True}, "--exact does not work with --context-ranks"),
    ],
)
def test_what_it_does_not_work_with_is_one_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_context(Options(**given), given["ranks"])
        check_shard_ranks(Options(**given), given["ranks"])
