"""The intransitive game: its equilibrium by hand, the page against the raw file, and two players that play it again."""

from __future__ import annotations

import importlib
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def game() -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module("preference_game")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def test_the_equilibrium_by_hand(game: ModuleType) -> None:
    """Without a KL: edges 0.1 (b, c), 0.4, 0.4 over 0.9. With one: log pi - log start - P / tau is flat."""
    nash = game.equilibrium(0)
    assert nash == pytest.approx((1 / 9, 4 / 9, 4 / 9))
    assert [game.against(reply, nash) for reply in game.REPLIES] == pytest.approx([0.5] * 3)
    assert game.exploitability(nash) == pytest.approx(0) and game.exploitability((0, 0, 1)) == pytest.approx(0.1)
    pi = game.equilibrium(0.1)
    flat = [
        math.log(p / s) - game.against(reply, pi) / 0.1
        for p, s, reply in zip(pi, game.START, game.REPLIES, strict=True)
    ]
    assert flat == pytest.approx([flat[0]] * 3, abs=1e-9) and sum(pi) == pytest.approx(1)
    assert game.distance((1, 0, 0), (0, 0.5, 0.5)) == 1


def test_the_page_has_the_numbers_of_the_raw_file(game: ModuleType) -> None:
    page = (ROOT / "docs" / "preference-oracles.md").read_text()
    stored = json.loads(game.OUT.read_text())
    for line in game.table(stored):
        assert line in page
    assert game.SVG.read_text() == game.drawn(stored)
    nash = [run["distance"] for name in ("inpo", "online_ipo", "nash_md") for run in stored[name]["runs"].values()]
    others = [run["distance"] for name in ("dpo", "online_dpo") for run in stored[name]["runs"].values()]
    assert max(nash) < 0.15 and min(others) > 0.35


@pytest.mark.slow
def test_inpo_reaches_the_equilibrium_and_dpo_does_not(game: ModuleType, tmp_path: Path) -> None:
    base = game.prepared(tmp_path, 3)
    found = {}
    for name, steps in (("inpo", 100), ("dpo", 60)):
        player = replace(game.PLAYERS[name], lr=2e-5)
        found[name] = game.result(player, game.played(player, tmp_path, base, 3, steps))
    assert found["inpo"]["start"] > 0.3
    assert found["inpo"]["distance"] < 0.2 < 0.35 < found["dpo"]["distance"], found
