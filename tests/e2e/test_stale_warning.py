"""Who is warned that replies of older weights are learned from as if they were fresh."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import go

from burnish.run.train import Observer


class Hearing(Observer):
    """Holds what was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def warned(self, said: str) -> None:
        self.said.append(said)


@pytest.mark.parametrize(
    ("method", "lag", "warned"), [("reinforce", 1, True), ("grpo", 1, False), ("reinforce", 0, False)]
)
def test_a_method_without_importance_weights_is_warned_of_lag(
    method: str, lag: int, warned: bool, small_model: Path, tmp_path: Path
) -> None:
    observer = Hearing()
    go(method, small_model, tmp_path / "run", lag=lag, observer=observer)
    said = [text for text in observer.said if "does not use the log-probs" in text]
    assert bool(said) == warned
    if warned:
        assert said[0].startswith("reinforce does not use") and "with --lag 1 it learns" in said[0]
