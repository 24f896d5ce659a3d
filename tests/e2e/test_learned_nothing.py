"""A run in which no weight had a reason to move ends with an error, not with a trained model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from runs import function, go

from burnish import draw, learn, rollout
from burnish.core.method import Method, method, roles
from burnish.learn.term import Live, Term
from burnish.run.learned import require_learned, scored_the_same
from burnish.run.observers import Observer


def multiplied(factor: float) -> Any:
    """SFT whose loss is multiplied by a number, and so is its gradient."""

    def sft_times(task: draw.Source) -> Method:
        """L = factor x -log pi(y)"""
        plain = learn.imitate(on="demo")

        def loss(live: Live) -> Any:
            return factor * plain.loss(live)

        term = Term(name="times", on="demo", unit="token", loss=loss, live=plain.live, norm=plain.norm)
        return method(draw=draw.demos(task), rollout=rollout.given("demo"), learn=learn.Learn(term), models=roles())

    return sft_times


SLOW = """
import time

def slow(completions):
    time.sleep(60)
"""


def same(completions: list[str]) -> list[float]:
    return [0.5 for _ in completions]


class Heard(Observer):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warned(self, said: str) -> None:
        self.warnings.append(said)


@pytest.mark.parametrize(
    ("factor", "said"),
    [(math.nan, "every update of its 2 steps was refused"), (0.0, "the gradient was 0 in all 2 steps")],
)
def test_a_run_without_one_update_fails(factor: float, said: str, small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"learned nothing, so no model is saved: {said}"):
        go(multiplied(factor), small_model, tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints").is_dir() and not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize("policy", ["zero", "drop"])
def test_a_run_whose_replies_all_timed_out_fails(policy: str, small_model: Path, tmp_path: Path) -> None:
    more = {
        "reward": function(tmp_path / "slow.py", SLOW, "slow"),
        "reward_timeout": 0.3,
        "on_reward_failure": policy,
        "prompts": 1,
    }
    with pytest.raises(ValueError, match=r"no reply of its 2 steps got a reward \(.*0.3 s.*\); fix the reward"):
        go("grpo", small_model, tmp_path / "run", **more)
    assert not (tmp_path / "run" / "model").exists()


def test_equal_scores_are_a_warning(small_model: Path, tmp_path: Path) -> None:
    heard = Heard()
    result = go("grpo", small_model, tmp_path / "run", reward=same, beta=0.0, observer=heard)
    assert result.model is not None
    assert any("in all 2 steps the gradient was 0, because all replies to a prompt" in said for said in heard.warnings)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [{"grad_norm": 0.0}, {"grad_norm": 0.1}],
        [{"refused": 1.0}, {"critic/grad_norm": 0.1}],
        [{"reward_failures": 3.0, "sampled_tokens": 40.0, "length": 10.0, "grad_norm": 0.5}],  # 3 of 4
        [{"reward_failures": 4.0, "sampled_tokens": 40.0, "length": 10.0}, {"grad_norm": 0.5}],
        [{"reward": 0.0, "grad_norm": 0.0}],
        [{"traces": 0.0, "dropped/all_the_same": 1.0}],
    ],
)
def test_a_run_that_has_learned_is_no_error(history: list[dict[str, float]]) -> None:
    require_learned(history, False, "why")
    assert bool(scored_the_same(history)) == (history == [{"reward": 0.0, "grad_norm": 0.0}])


def test_failed_replies_that_were_dropped_are_no_longer_among_the_replies() -> None:
    kept = {"reward_failures": 2.0, "sampled_tokens": 20.0, "length": 10.0, "grad_norm": 0.5}  # two failed, two kept
    require_learned([kept], True, "why")
    with pytest.raises(ValueError, match="no reply of its 1 steps got a reward"):
        require_learned([kept], False, "why")
