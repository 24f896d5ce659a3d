"""--reward-model DIR: an option of some methods, and --reward "rm(DIR)" for all others."""

from __future__ import annotations

from typing import Any

import pytest

from burnish.config.options import Config, configure
from burnish.methods.table import find


def of(method: str, **given: Any) -> Config:
    return configure(find(method), method, given)


def test_a_method_with_the_option_keeps_it() -> None:
    told = of("grpo", reward_model="runs/rm/model")
    assert told.arguments["reward_model"] == "runs/rm/model" and not told.options.reward


@pytest.mark.parametrize(
    ("reward", "whole"),
    [(None, "rm(runs/rm/model)"), ("math*0.5", "math*0.5,rm(runs/rm/model)")],
)
def test_for_any_other_it_is_a_reward(reward: str | None, whole: str) -> None:
    told = of("dr_grpo", reward=reward, reward_model="runs/rm/model")
    assert told.options.reward == whole and "reward_model" not in told.arguments


def test_it_stands_beside_functions() -> None:
    def brief(completion: str) -> float:
        return float(len(completion) < 9)

    assert of("dr_grpo", reward=brief, reward_model="rm").options.reward == "python:brief,rm(rm)"
    several = of("dr_grpo", reward=[brief, "math"], reward_model="rm").options.reward
    assert several == "python:brief,math,rm(rm)"


def test_a_misspelt_one_is_refused() -> None:
    with pytest.raises(ValueError, match="no option 'reward_modle'"):
        of("dr_grpo", reward_modle="rm")
