"""Which tests run on a planted slip, and which slip of an earlier run is which of today."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import mutants
from slips import planted, slips

SOURCE = "def low(x):\n    return x < 3\n\n\ndef high(x):\n    return x > 3\n"
FILE = "burnish/made_up.py"


def called(seconds: float, size: int, *calls: str) -> dict[str, object]:
    return {"seconds": seconds, "size": size, "calls": [f"{FILE}:{call}" for call in calls]}


def test_the_most_specific_tests_run_first_and_no_longer_than_allowed() -> None:
    slip = next(slip for slip in slips(FILE, SOURCE) if slip.function == "high" and slip.what == "comparison")
    assert planted(SOURCE, slip.number) == SOURCE.replace("x > 3", "(x >= 3)")
    known = {
        "wide": called(1, 900, "1", "5"),
        "slow": called(9, 2, "5"),
        "other": called(1, 1, "1"),
        "narrow": called(2, 10, "5"),
        "too much": called(8, 9, "5"),
    }
    assert mutants.tests_for(slip, known, 12) == ["narrow", "wide", "slow"]
    assert mutants.tests_for(slip, {"other": known["other"]}, 12) == ["other"]  # nothing calls it: what calls its file


def test_a_slip_is_found_again_on_another_line() -> None:
    slip, moved = slips(FILE, SOURCE)[0], slips("burnish/renamed.py", "\n\n" + SOURCE)
    old = {"function": slip.function, "what": slip.what, "before": slip.before, "after": slip.after}
    assert [mutants.alike(other, old) for other in moved] == [True, *[False] * (len(moved) - 1)]
