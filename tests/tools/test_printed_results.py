"""The raw file of printed commands: every one of preference, reward and data methods ran, and its mechanism acted."""

from __future__ import annotations

import json

import pytest
from test_preference_rigs import loaded

from burnish.methods.table import METHODS

SCRIPT = loaded("printed_commands")
ROWS = {row["method"]: row for row in json.loads(SCRIPT.OUT.read_text())["rows"]}


@pytest.mark.parametrize("name", SCRIPT.names())
def test_its_mechanism_acted(name: str) -> None:
    """Run again with: python scripts/printed_commands.py. tests/e2e/test_printed_commands.py (slow) runs them, too."""
    assert ROWS[name]["command"] == METHODS[name].example, "the command has changed: run the script again"
    assert not SCRIPT.problem(ROWS[name], ROWS["dpo"]["weights"])


def test_a_run_that_did_nothing_is_found() -> None:
    fine = {"method": "bco", "code": 0, "weights": "b", "metrics": {"grad_norm": [0.0, 1.0], "density": [0.0, 0.5]}}
    assert SCRIPT.problem(fine, "a") == ""
    assert SCRIPT.problem(fine, "b") == "its weights are those of dpo"
    assert "no step had a gradient" in SCRIPT.problem({**fine, "metrics": {"grad_norm": [0.0, None]}}, "a")
    still = {**fine, "metrics": {"grad_norm": [1.0], "density": [0.0]}}
    assert SCRIPT.problem(still, "a") == "the metric density is absent or 0 in every step"
    assert SCRIPT.problem({"method": "bco", "code": 2, "said": "no"}, "a") == "exit code 2: no"
