"""Bad inputs by the hundred, with a fixed seed: each is answered in a sentence, none with a traceback or a hang."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from guards import guards

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import fuzz_inputs  # noqa: E402

pytestmark = guards("util", "tasks/data", "config/options.py", "models")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_DEBUG", "0")


def fuzzed(kind: str, seconds: float) -> None:
    """Inputs of one kind, from the first of seed 0 on: as many as this machine can give in this time."""
    found = list(fuzz_inputs.fuzz(100_000, 0, (kind,), seconds=seconds))
    wrong = [one for one in found if one.ending in ("traceback", "hang")]
    assert not wrong, [f"{one.ending} {one.where} {one.error} {one.case.words} {one.case.what}" for one in wrong]
    assert sum(one.ending == "refused" for one in found) >= 5, "too few to mean anything"


@pytest.mark.parametrize("kind", fuzz_inputs.KINDS)
def test_seconds_of_bad_inputs(kind: str) -> None:
    fuzzed(kind, 2 if kind == "models" else 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", fuzz_inputs.KINDS)
def test_minutes_of_bad_inputs(kind: str) -> None:
    fuzzed(kind, 60)


def test_the_same_seed_gives_the_same_inputs(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made = fuzz_inputs.cases(24, 0, tmp_path / name)
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
