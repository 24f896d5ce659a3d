"""A sweep runs no setting twice: the defaults are the baseline, whatever the grid calls them."""

from __future__ import annotations

from typing import Any

import pytest

from burnish.compare.plan import Candidate
from burnish.compare.sweep import Grid, run_once, trials


@pytest.mark.parametrize(
    ("values", "base", "shared", "against"),
    [
        (Grid("n", ("4", "8")), {}, {}, "n=8"),
        (Grid("lr", ("1e-5", "1e-4")), {}, {}, "lr=1e-4"),  # the default rate of tiny
        (Grid("lr", ("1e-5", "2e-5")), {}, {"lr": 2e-5}, "lr=2e-5"),
        (Grid("n", ("4", "16")), {}, {}, ""),
        (Grid("eps", ("0.1", "0.3")), {"eps": 0.3}, {}, "eps=0.3"),
    ],
)
def test_the_defaults_are_run_once(values: Grid, base: dict[str, Any], shared: dict[str, Any], against: str) -> None:
    start = Candidate("grpo", "grpo", base)
    settings = [Candidate(one.label, "grpo", {**base, **one.flags}) for one in trials("grpo", [values], [], None)]
    candidates, baseline = run_once(start, settings, {"model": "tiny", **shared}, "add")
    assert baseline == (against or "grpo")
    assert len(candidates) == (2 if against else 3)
