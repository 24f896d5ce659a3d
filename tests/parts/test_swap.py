"""Any method, one part swapped: a grid of compatible pairs builds and steps, an incompatible one is refused in words."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import SMALL, build_cast
from test_learn import TASK, same_gradient

from burnish.credit.group import group_relative
from burnish.learn.norms import constant
from burnish.learn.terms import dpo, pg_clip
from burnish.loop import loop
from burnish.methods.hybrid import chord_phi
from burnish.methods.policy import grpo, ppo
from burnish.swap import factories, part_from, swap, swapped

METHODS = {
    "grpo": lambda: grpo(TASK, n=4),
    "chord_phi": lambda: chord_phi(TASK, n=4),
    "ppo": lambda: ppo(TASK, n=2, epochs=1),
}
CREDITS = ["group_relative=group_relative(std=False)", "behaviour=old()"]
TERMS = ["pg=pg_clip(0.2, 0.28)", "pg=pg_clip(0.2, dual=3.0)", "pg=pg_reinforce()"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("words", [*CREDITS, *TERMS])
def test_the_grid_builds_and_steps_or_is_refused_in_words(method: str, words: str, small_model: Path) -> None:
    built = METHODS[method]()
    if (method == "ppo" and words.startswith("group_relative")) or (method != "ppo" and words == "pg=pg_reinforce()"):
        # ppo has no group_relative; a term without a ratio leaves the anchor unread
        with pytest.raises(
            ValueError, match="no part or term called 'group_relative'|writes 'stream:old', but nothing"
        ):
            swapped(built, words)
        return
    changed = swapped(built, words)
    next(loop(changed, build_cast(changed, small_model), SMALL, steps=1))


def test_swapping_in_python_and_in_words_is_the_same(small_model: Path) -> None:
    in_words = swapped(grpo(TASK, n=4), "group_relative=group_relative(std=False); pg=pg_clip(0.2, 0.28)")
    in_python = swap(grpo(TASK, n=4), group_relative=group_relative(std=False), pg=pg_clip(0.2, 0.28))
    same_gradient(in_words, in_python, small_model)


def test_a_swap_to_itself_changes_nothing(small_model: Path) -> None:
    from burnish.learn.norms import seq_mean

    same_gradient(swap(grpo(TASK, n=4), pg=pg_clip(0.2, norm=seq_mean)), grpo(TASK, n=4), small_model)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("gae=group_relative()", "has no part or term called 'gae' to replace; it has prompts, sample, verify"),
        ("group_relative=leave_two_out()", "there is no part 'leave_two_out'"),
        ("group_relative=group_relativ()", "there is no part 'group_relativ'; did you mean group_relative"),
        ("group_relative=group_relative(scale=3)", "unexpected keyword argument 'scale'; its arguments are"),
        ("group_relative", "says nothing to put in"),
        ("pg=__import__('os')", "there is no part '__import__'"),
        ("pg=pg_clip(open('x'))", "malformed node or string"),
        ("pg=1+1", "is not a part; write its name"),
    ],
)
def test_bad_swaps_are_refused_in_words(words: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        swapped(grpo(TASK, n=4), words)


def test_a_term_of_another_unit_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match="term 'pg' reads 'pairs', which nothing in credit or the cast supplies; it could come from select.best_vs_worst",
    ):
        swap(grpo(TASK, n=4), pg=dpo(0.1))


def test_norms_travel_with_their_terms() -> None:
    changed = swap(grpo(TASK, n=4), pg=pg_clip(0.2, norm=constant(64)))
    assert changed.phases[0].learn.terms[0].norm.name == "sum over sequences x budget"
    assert replace(changed).name == "method"


def test_every_factory_makes_what_it_says() -> None:
    found = factories()
    assert {
        "group_relative",
        "gae",
        "sample",
        "verify",
        "pg_clip",
        "member",
        "best_vs_worst",
        "prompts",
    } <= found.keys()
    assert part_from("group_relative").name == "group_relative(std)"


def test_no_two_parts_share_a_name() -> None:
    """Words name parts, so a name must mean one thing."""
    homes: dict[str, set[str]] = {}
    for function in factories().values():
        homes.setdefault(function.__name__, set()).add(function.__module__)
    for room in ("draw", "rollout", "score", "select", "credit", "learn.terms"):
        package = importlib.import_module(f"burnish.{room}")
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, function in inspect.getmembers(importlib.import_module(found.name), inspect.isfunction):
                if name in homes and inspect.signature(function).return_annotation in (
                    "Part",
                    "Term",
                    "Rollout",
                    "Draw",
                ):
                    homes[name].add(function.__module__)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}
