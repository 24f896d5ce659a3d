"""Any method, one part swapped: a grid of compatible pairs builds and steps, an incompatible one is refused."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, build_method
from test_learn import TASK, same_gradient

from burnish.compose.swap import factories, part_from, swap, swapped
from burnish.core.loop import loop
from burnish.credit.group import group_relative
from burnish.learn import norms
from burnish.learn.norms import constant
from burnish.learn.terms import dpo, pg_clip
from burnish.methods.policy import grpo
from burnish.methods.surrogates import dr_grpo
from burnish.methods.table import METHODS

ADVANTAGES = [
    "group_relative(std=False)",
    "group_mean_batch_std()",
    "leave_one_out()",
    "over_batch_mean()",
    "over_length_weighted_mean()",
]
SURROGATES = [
    "pg_clip(0.1)",
    "pg_clip(0.2, 0.28)",
    "pg_clip(0.2, dual=3.0)",
    "pg_sequence(3e-4, 4e-4)",
    "pg_sequence_by_token(0.2, 0.2)",
    "pg_geometric(0.4)",
    "pg_held_ratio(0.0, 2.0)",
    "pg_soft(1.0, 1.05)",
    "pg_log_ratio(0.2)",
    "pg_tapered()",
    "pg_reinforce()",
]
GRID = [
    *(f"group_relative={part}" for part in ADVANTAGES),
    *(f"pg={term}" for term in SURROGATES),
    "behaviour=old()",
    "gae=macro_gae(3)",
    "gae=lambda_returns()",
    "whiten=whiten(centre=False)",
    "kl=kl_k2(coef=0.01)",
    "sample=sample(3)",
    "sample=sample(3, top_k=20)",
    "sft=imitate_smoothed(0.1)",
    "mixed=partly_right()",
    "value=value_clip(0.5)",
]
REFUSED = (
    r"has no part or term called '\w+' to replace; it has |reads '[\w:.]+', which nothing .* it could come from |"
    r"reads 'model:[\w.]+', which nothing before it writes; add \w+=\.\.\. with the capability|"
    r"reads '[\w:.]+', which nothing before it and none of the models supplies; |writes '[\w:]+', but nothing after "
    r"it reads it; add|"
    r"writes '[\w:]+', which .* wrote already; rename one or drop one|two terms are both called"
)
FITS = {  # how many of the registered methods each swap fits, at the least
    "pg=pg_clip(0.1)": 50,
    "group_relative=leave_one_out()": 25,
    "pg=pg_soft(1.0, 1.05)": 40,
    "behaviour=old()": 45,
    "sample=sample(3)": 50,
    "gae=macro_gae(3)": 10,
    "value=value_clip(0.5)": 8,
    "gae=lambda_returns()": 0,  # it writes no advantages
}


@pytest.mark.parametrize("words", GRID)
def test_every_method_takes_a_part_or_refuses_it_in_words(words: str, other_model: Path) -> None:
    """Each swap on each registered method: built anew, or refused in a sentence that says what does not fit."""
    fits = 0
    for name in METHODS:
        built = build_method(name, other_model)
        try:
            changed = swapped(built, words)
        except ValueError as error:
            assert re.search(REFUSED, str(error)), f"{name} --swap {words!r}: {error}"
        else:
            assert changed.phases != built.phases
            fits += 1
    assert fits >= FITS.get(words, 1)


STEPPED = [
    *(("grpo", f"pg={term}") for term in SURROGATES if term != "pg_reinforce()"),
    *(
        (name, f"group_relative={part}")
        for name, part in zip(["gspo", "cispo", "dr_grpo", "sapo", "chord_phi"], ADVANTAGES, strict=True)
    ),
    ("ppo", "gae=macro_gae(3)"),
    ("ppo", "pg=pg_soft(1.0, 1.05)"),
    ("ppo", "behaviour=old()"),
    ("rloo", "sample=sample(3)"),
    ("conciser", "pg=pg_held_ratio(0.0, 2.0)"),
    ("prefix_rft", "pg=pg_clip(0.1)"),
    ("sft", "sft=imitate_smoothed(0.1)"),
    ("rloo", "pg=pg_reinforce()"),
    ("salsa", "value=value_clip(0.5)"),
    ("luffy", "group_relative=group_relative(std=False)"),
]


@pytest.mark.parametrize(("name", "words"), STEPPED)
def test_the_swapped_method_steps(name: str, words: str, small_model: Path, other_model: Path) -> None:
    changed = swapped(build_method(name, other_model), words)
    report = next(loop(changed, build_cast(changed, small_model), SMALL, steps=1))
    assert all(torch.isfinite(torch.tensor(float(v))) for v in report.metrics.values())


def test_swapping_in_python_and_in_words_is_the_same(small_model: Path) -> None:
    in_words = swapped(grpo(TASK, n=4), "group_relative=group_relative(std=False); pg=pg_clip(0.2, 0.28)")
    in_python = swap(grpo(TASK, n=4), group_relative=group_relative(std=False), pg=pg_clip(0.2, 0.28))
    same_gradient(in_words, in_python, small_model)


def test_a_swap_to_itself_changes_nothing(small_model: Path) -> None:
    from burnish.learn.norms import seq_mean

    same_gradient(swap(grpo(TASK, n=4), pg=pg_clip(0.2, norm=seq_mean)), grpo(TASK, n=4), small_model)


def test_a_norm_is_named_among_the_arguments() -> None:
    """Each norm is the one of learn/norms.py; constant takes the run's longest reply, or a number."""
    for name in ("token_mean", "seq_mean", "seq_sum_mean", "group_mean", "unit_mean"):
        assert part_from(f"pg_clip(0.2, norm={name})").norm is getattr(norms, name)
    counts = norms.Counts(tokens=10, sequences=2, groups=1, units=10, longest=8)
    assert part_from("pg_clip(0.2, norm=constant)").norm.size(counts) == 16
    assert part_from("pg_clip(0.2, norm=constant(5))").norm.size(counts) == 10
    with pytest.raises(ValueError, match="pg_clip.*malformed"):
        part_from("pg_clip(0.2, norm=median)")


def test_dr_grpo_is_grpo_with_a_constant_norm_and_no_spread(small_model: Path) -> None:
    words = "pg=pg_clip(0.2, norm=constant); group_relative=group_relative(std=False)"
    same_gradient(swapped(grpo(TASK, n=4, beta=0.0), words), dr_grpo(TASK, n=4), small_model)


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
        match="term 'pg' reads 'pairs', which nothing before it and none of the models supplies; "
        r"it could come from (select\.\w+, )*select\.best_vs_worst",
    ):
        swap(grpo(TASK, n=4), pg=dpo(0.1))


def test_norms_travel_with_their_terms() -> None:
    changed = swap(grpo(TASK, n=4), pg=pg_clip(0.2, norm=constant(64)))
    assert changed.phases[0].learn.terms[0].norm.name == "sum over sequences x budget"
    assert replace(changed).name == "grpo"


def test_every_factory_makes_what_it_says() -> None:
    found = factories()
    assert {
        "group_relative",
        "gae",
        "sample",
        "verify",
        "pg_clip",
        "claim",
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
