"""The experiments on preference data: their statistics, and that docs, plots and raw results agree."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "preferences.md"
RIGS = {"label_noise": "label-noise.svg", "length_bias": "length-bias.svg", "policy_data": "policy-data.svg"}
TABLES = {  # measure and heading of each table in the docs
    "label_noise": [("PAIRS", "flipped"), ("RIGHT", "flipped")],
    "length_bias": [("LENGTH", "prefer longer"), ("RIGHT", "prefer longer")],
    "policy_data": [("RIGHT", "pairs")],
}

SHIFTS = {"length_bias": "LENGTH", "policy_data": "RIGHT"}  # the measure whose change between conditions is shown


def loaded(name: str, folder: str = "scripts") -> ModuleType:
    """A script as a module; scripts import their neighbours by name."""
    sys.path.insert(0, str(ROOT / folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / folder))


@pytest.fixture(scope="module")
def rigs() -> ModuleType:
    return loaded("preference_rigs")


def stored(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def runs(**numbers: list[list[float]]) -> dict[str, Any]:
    """Results of one condition: method -> x[s][t]."""
    rows = [
        {"method": name, "condition": "c", "seed": seed, "right": row}
        for name, matrix in numbers.items()
        for seed, row in enumerate(matrix)
    ]
    return {"methods": list(numbers), "conditions": ["c"], "rows": rows, "start": {"right": [0.0]}}


def test_means_are_over_seeds_and_tasks(rigs: ModuleType) -> None:
    """(0 + 1 + 1 + 1) / 4 = 75%; two methods with equal numbers do not differ."""
    found = runs(a=[[0.0, 1.0], [1.0, 1.0]], b=[[0.0, 1.0], [1.0, 1.0]])
    assert rigs.estimate(found, rigs.RIGHT, "a", "c").mean == 0.75
    assert [d.p for d in rigs.differences(found, rigs.RIGHT)] == [1.0]
    assert rigs.table(found, rigs.RIGHT, "x")[-1].count("75.0%") == 2


def test_a_clear_difference_is_marked_and_one_within_the_noise_is_not(rigs: ModuleType) -> None:
    """Five seeds: all runs of b are better than all of a, p = 2 / C(10, 5) = 0.008, doubled by Holm; c is a's equal."""
    dice = np.random.default_rng(0)
    noise = [dice.uniform(0.4, 0.6, (5, 40)) for _ in range(3)]
    found = runs(a=noise[0].tolist(), b=(noise[1] + 0.3).tolist(), c=noise[2].tolist())
    better, same = rigs.differences(found, rigs.RIGHT)
    assert better.p == pytest.approx(2 * 2 / 252) and better.significant and not same.significant
    assert better.by.mean == pytest.approx(0.3, abs=0.02)
    assert [cell.endswith("\\* ") for cell in rigs.table(found, rigs.RIGHT, "x")[-1].split("|")[2:5]] == [
        False,
        True,
        False,
    ]


def test_a_pair_is_right_where_the_preferred_reply_gained_more(rigs: ModuleType) -> None:
    start = np.array([[-1.0, -2.0], [-1.0, -2.0], [-1.0, -2.0]])
    assert rigs.preferred(start, start + np.array([[0.1, 0.0], [0.0, 0.1], [0.2, 0.2]])) == [1.0, 0.0, 0.5]


def test_the_longest_and_the_shortest_right_reply_are_a_pair() -> None:
    row = {"prompt": "p", "responses": ["a", "bb", "ccc", "dddd"], "lengths": [1, 2, 3, 4], "scores": [1, 1, 1, 0]}
    pair = loaded("length_bias").longest_and_shortest
    assert pair(row) == {"prompt": "p", "chosen": "ccc", "rejected": "a"}
    assert pair({**row, "scores": [1, 0, 0, 0]}) is None
    assert pair({**row, "lengths": [2, 2, 2, 4]}) is None


def test_conditions_have_the_same_prompts() -> None:
    common = loaded("policy_data").common
    found = common({"own": [{"prompt": "a", "n": 1}, {"prompt": "b", "n": 2}], "other": [{"prompt": "b", "n": 3}]})
    assert found == {"own": [{"prompt": "b", "n": 2}], "other": [{"prompt": "b", "n": 3}]}


@pytest.mark.parametrize("name", sorted(RIGS))
def test_every_method_ran_under_every_condition_with_every_seed(name: str) -> None:
    found = stored(name)
    wanted = {(m, c, s) for m in found["methods"] for c in found["conditions"] for s in range(found["seeds"])}
    ran = [(row["method"], row["condition"], row["seed"]) for row in found["rows"]]
    assert len(ran) == len(set(ran)) and set(ran) == wanted and found["seeds"] >= 5


@pytest.mark.parametrize("name", sorted(RIGS))
def test_the_docs_show_the_stored_results(name: str, rigs: ModuleType) -> None:
    """Regenerate with: python scripts/NAME.py --draw"""
    found, page = stored(name), PAGE.read_text()
    for measure, heading in TABLES[name]:
        assert "\n".join(rigs.table(found, getattr(rigs, measure), heading)) in page
    if name in SHIFTS:
        assert "\n".join(rigs.shift_table(found, getattr(rigs, SHIFTS[name]))) in page
    assert loaded(name).picture(found) == (ROOT / "docs" / RIGS[name]).read_text()


def test_the_losses_of_dpo_are_those_of_trl() -> None:
    """The same rows in the same order: at each step the losses agree to a thousandth, and the docs show the table."""
    module, found = loaded("preference_real", "benchmarks"), stored("preference_real")
    trl = found["runs"]["trl"]
    assert trl["same_tokens"] == trl["rows"] == found["steps"] * found["pairs"]
    assert len(trl["loss"]) == found["steps"] and max(trl["loss"]) - min(trl["loss"]) > 0.1
    assert max(module.gaps(found)) < 1e-3
    assert "\n".join(module.table(found)) in PAGE.read_text()
    assert module.drawn(found) == (ROOT / "docs" / "preference-real.svg").read_text()


def test_held_out_numbers_by_hand() -> None:
    """The first pair's margin is 0.1 (1 - (-1)) = 0.2, the second's 0.1 (0 - 1) = -0.1: half are right, mean 0.05."""
    found = {
        "heldout": {
            "start": {"chosen": [-2.0, -2.0], "rejected": [-2.0, -2.0]},
            "dpo": {"chosen": [-1.0, -2.0], "rejected": [-3.0, -1.0]},
        },
        "lengths": {"chosen": [1, 4], "rejected": [1, 1]},
    }
    row = loaded("preference_real", "benchmarks").summary("dpo", found)
    assert row["implicit"].mean == 0.5 and row["margin"].mean == pytest.approx(0.05)
    assert row["by_token"].mean == 1.0  # -1 > -3, and -2/4 > -1
    assert (row["chosen"], row["rejected"]) == (0.5, 0.0)
