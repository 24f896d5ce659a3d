"""The comparison of preference methods: its statistics, its tuning, and that the pages say what the raw file says."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_preference_rigs import loaded

from burnish.methods.table import load_all

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results() -> ModuleType:
    load_all()
    return loaded("preference_results")


@pytest.fixture(scope="module")
def study() -> ModuleType:
    return loaded("preference_methods")


def test_false_discoveries_by_hand(results: ModuleType) -> None:
    """Sorted p: 0.01 <= 0.05/4, 0.02 <= 0.1/4, 0.04 > 0.15/4, 0.045 <= 0.2/4: the largest k is 4, so all are kept."""
    assert results.discovered({"a": 0.04, "b": 0.01, "c": 0.045, "d": 0.02}) == {"a", "b", "c", "d"}
    assert results.discovered({"a": 0.04, "b": 0.01, "c": 0.06, "d": 0.02}) == {"b", "d"}
    assert results.discovered({"a": 0.3, "b": 0.2}) == set()


def row(method: str, stage: str, rate: float, factor: float, seed: int, mean: float) -> dict[str, Any]:
    return {"method": method, "stage": stage, "rate": rate, "factor": factor, "seed": seed, "mean": mean}


def test_the_rate_is_tuned_before_the_strength(study: ModuleType) -> None:
    """Means over both seeds: rate 3e-5 wins (0.6 against 0.55); then five times the strength does; then seeds run."""
    load_all()
    grid = study.Grid((1e-5, 3e-5), (0.2, 1.0, 5.0), (1000, 1001), 10)
    first = study.planned("dpo", [], 2, grid)
    assert [(job.rate, job.factor, job.seed) for job in first] == [
        (1e-5, 1.0, 1000),
        (3e-5, 1.0, 1000),
        (1e-5, 1.0, 1001),
        (3e-5, 1.0, 1001),
    ]
    rows = [row("dpo", "tuned", 1e-5, 1.0, 1000, 0.9), row("dpo", "tuned", 1e-5, 1.0, 1001, 0.2)]
    rows += [row("dpo", "tuned", 3e-5, 1.0, seed, 0.6) for seed in (1000, 1001)]
    second = study.planned("dpo", rows, 2, grid)
    assert {(job.rate, job.factor) for job in second} == {(3e-5, 0.2), (3e-5, 5.0)}
    rows += [row("dpo", "tuned", 3e-5, factor, seed, factor / 10) for factor in (0.2, 5.0) for seed in (1000, 1001)]
    rows += [row("dpo", "tuned", 1e-5, 5.0, 1000, 1.0)]  # of a rate that was not chosen
    last = study.planned("dpo", rows, 2, grid)
    assert [(job.stage, job.rate, job.factor, job.seed) for job in last] == [
        ("seeded", 3e-5, 1.0, 0),
        ("seeded", 3e-5, 1.0, 1),
    ]
    rows += [row("dpo", "seeded", 3e-5, 1.0, seed, 0.7) for seed in (0, 1)]
    assert study.planned("dpo", rows, 2, grid) == []


def test_every_preference_method_ran_with_five_seeds(results: ModuleType, study: ModuleType) -> None:
    wanted = {*study.compared()}
    assert len(wanted) >= 62
    found = results.stored()
    assert set(results.names_of(found)) == wanted
    for name in wanted:
        assert [one["seed"] for one in results.rows_of(found, name)] == [0, 1, 2, 3, 4], name
        assert all(len(one["right"]) == 100 for one in results.rows_of(found, name))


def test_the_curves_differ(results: ModuleType) -> None:
    """Settings at which methods separate. aot without pairs is aot where every prompt has one pair."""
    found = results.stored()
    curves = {name: str([one["curve"] for one in results.rows_of(found, name)]) for name in results.names_of(found)}
    same: dict[str, list[str]] = {}
    for name, curve in curves.items():
        same.setdefault(curve, []).append(name)
    assert [sorted(names) for names in same.values() if len(names) > 1] == [["aot", "aot_unpaired"]]


def test_the_pages_say_what_the_raw_file_says(results: ModuleType) -> None:
    """Regenerate with: python scripts/preference_results.py; python scripts/write_method_docs.py"""
    found = results.stored()
    assert results.page(found) == results.PAGE.read_text()
    for name in results.names_of(found):
        assert results.told(found, name) in (ROOT / "docs" / "methods" / f"{name}.md").read_text(), name
