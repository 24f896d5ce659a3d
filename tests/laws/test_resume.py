"""Stop at step k and resume: the result equals the uninterrupted run, bit for bit, for every method."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest
from conftest import arguments_for, build_method, recorded, run_options_for

import burnish
from burnish.api.train import resume
from burnish.checkpoint.diff import differences, log_rows
from burnish.compose.rewards import scores_replies
from burnish.methods.table import METHODS


@cache
def what_is_saved(name: str) -> frozenset[object]:
    """What a checkpoint of a method holds: kinds of state, roles of models, number of phases."""
    method = build_method(name, Path("teacher"))
    kinds = {type(part).__qualname__ for part in method.stateful().values()}
    roles = {(role.liveness, role.outputs > 0) for role in method.models.values()}
    return frozenset({*kinds, *roles, len(method.phases), tuple(sorted(run_options_for(name)))})


def law_cases() -> list[object]:
    """Every method; beside as few as together save everything that can be saved, they are slow tests."""
    left = set().union(*map(what_is_saved, METHODS))
    chosen: set[str] = set()
    while left:
        best = max(sorted(METHODS), key=lambda name: len(what_is_saved(name) & left))
        chosen.add(best)
        left -= what_is_saved(best)
    return [name if name in chosen else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]


def run_once(name: str, model: Path, teacher: Path, out: Path, **more: object) -> None:
    options = {
        "model": str(model),
        "task": METHODS[name].trial.get("task", "sort"),
        "steps": 4,
        "prompts": 2,
        "max_new_tokens": 8,
    }
    options |= {
        "eval_tasks": 4,
        "eval_every": 2,
        "save_every": 2,
        "lr": 1e-3,
        "lr_schedule": "cosine",
        "lr_warmup": 1,
        "device": "cpu",
    }
    burnish.train(name, out=str(out), **options, **arguments_for(name, teacher), **run_options_for(name), **more)


@pytest.mark.parametrize("name", law_cases())
def test_stop_and_resume_equals_straight_through(
    name: str, small_model: Path, other_model: Path, tmp_path: Path
) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text(
        "import hashlib\ndef coin(completions):\n    return [float(hashlib.md5(c.encode()).digest()[0] % 2) for c in "
        "completions]\n"
    )
    scored = METHODS[name].trial.get("task") != "guess" and scores_replies(build_method(name, Path("teacher")))
    more = {"reward": f"{reward}:coin"} if scored else {}
    straight, halted = tmp_path / "straight", tmp_path / "halted"
    run_once(name, small_model, other_model, straight, **more)
    shutil.copytree(straight, halted)
    shutil.rmtree(halted / "checkpoints" / "step-000004")
    shutil.rmtree(halted / "model", ignore_errors=True)
    resume(halted)
    assert len(log_rows(straight, "metrics")) == 4
    assert not differences(straight, halted)
    assert recorded(straight) == recorded(halted)


def test_the_same_seed_repeats_a_run_and_another_does_not(small_model: Path, other_model: Path, tmp_path: Path) -> None:
    for out, seed in (("a", 0), ("b", 0), ("c", 1)):
        run_once("sft", small_model, other_model, tmp_path / out, seed=seed)
    a, b, c = (recorded(tmp_path / out) for out in "abc")
    assert a == b
    assert a["metrics"] != c["metrics"]
    assert sorted({row[0] for row in a["metrics"]}) == [1, 2, 3, 4]
