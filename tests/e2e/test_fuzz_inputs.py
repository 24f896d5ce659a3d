"""Bad inputs by the hundred, with a fixed seed: each is answered in a sentence, none with a traceback or a hang."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
from guards import guards

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import fuzz_inputs  # noqa: E402

pytestmark = guards("util", "tasks/data", "config/options.py", "models", "recipes", "migrate", "serve")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_DEBUG", "0")


def fuzzed(n: int, kinds: tuple[str, ...], seconds: float = math.inf) -> None:
    """Inputs from the first of seed 0 on: so many, or as many as this machine can give in this time."""
    found = list(fuzz_inputs.fuzz(n, 0, kinds, seconds=seconds))
    wrong = [one for one in found if one.ending not in fuzz_inputs.FINE]
    assert not wrong, [f"{one.ending} {one.where} {one.error} {one.case.words} {one.case.what}" for one in wrong]
    assert sum(one.ending == "refused" for one in found) >= 5, "too few to mean anything"


def test_seconds_of_bad_inputs_of_every_kind() -> None:
    fuzzed(100_000, fuzz_inputs.KINDS, 5.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", fuzz_inputs.KINDS)
def test_a_hundred_bad_inputs(kind: str) -> None:
    fuzzed(100, (kind,))


def test_the_same_seed_gives_the_same_inputs(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made = fuzz_inputs.cases(2 * len(fuzz_inputs.KINDS), 0, tmp_path / name)
        texts.append(
            [(case.kind, [word.replace(str(tmp_path / name), "") for word in case.words], case.what) for case in made]
        )
    assert texts[0] == texts[1] and {kind for kind, _, _ in texts[0]} == set(fuzz_inputs.KINDS)


def test_a_traceback_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(words: list[str]) -> int:
        raise KeyError("oops")

    monkeypatch.setattr("burnish.commands.methods.main", broken)
    outcome = fuzz_inputs.give(fuzz_inputs.Case("words", ["methods"]))
    assert outcome.ending == "traceback" and "KeyError" in outcome.error


@pytest.mark.parametrize(
    ("case", "ending"),
    [
        (lambda: 3, "exit code"),
        (lambda: 2, "refused"),
        (lambda: 0, "accepted"),
        (lambda: (_ for _ in ()).throw(fuzz_inputs.Wrong("status 500")), "wrong answer"),
    ],
)
def test_other_endings(case: Any, ending: str) -> None:
    assert fuzz_inputs.give(fuzz_inputs.Case("serve", [], "", case)).ending == ending


def test_a_refusal_without_a_word_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.commands.methods.main", lambda words: 2)
    assert fuzz_inputs.give(fuzz_inputs.Case("words", ["methods"])).ending == "silent"
