"""NaN in a held-out evaluation: --on-nan skip leaves the evaluation out, --on-nan stop ends the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runs import COIN, function, go, same_run

import burnish
from burnish.checkpoint.diff import log_rows
from burnish.run.train import Observer

BAD = (
    COIN
    + """
import math
calls = 0

def f(completions):  # the calls named in BAD give a reward that is not finite
    global calls
    calls += 1
    scores = coin(completions)
    if calls - 1 in BAD:
        scores[-1] = math.nan
    return scores
"""
)
# calls of a run of two steps with --eval-every 1: before (0 greedy, 1 sampled), step 1 (2), during (3, 4), step 2 (5),
# after (6, 7)
EVALUATIONS = {"before training": 0, "after step 1": 3, "after training": 7}


class Hearing(Observer):
    def __init__(self) -> None:
        self.said: list[str] = []

    def warned(self, said: str) -> None:
        self.said.append(said)


def reward(tmp_path: Path, *bad: int) -> str:
    return function(tmp_path / f"r{len(list(tmp_path.iterdir()))}.py", BAD.replace("BAD", repr(bad)), "f")


@pytest.mark.parametrize("when", EVALUATIONS)
def test_an_evaluation_that_is_not_finite_is_left_out(when: str, small_model: Path, tmp_path: Path) -> None:
    heard = Hearing()
    bad = reward(tmp_path, EVALUATIONS[when])
    run = tmp_path / "run"
    result = go("grpo", small_model, run, reward=bad, eval_tasks=4, eval_every=1, observer=heard)
    assert len(heard.said) == 1 and f"the evaluation {when} met a number that is not finite: reward f" in heard.said[0]
    assert [event["kind"] for event in log_rows(run, "events")] == ["evaluation"]
    assert (result.before is None) == (when == "before training")
    assert (result.after is None) == (when == "after training")
    assert ("heldout/accuracy" in result.metrics[0]) == (when != "after step 1")
    if (run / "evaluation.json").exists():
        json.loads((run / "evaluation.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    go("grpo", small_model, tmp_path / "calm", reward=reward(tmp_path), eval_tasks=0)
    for part in ("traces", "metrics"):
        ours, calm = log_rows(run, part), log_rows(tmp_path / "calm", part)
        assert [{k: v for k, v in row.items() if "heldout" not in k} for row in ours] == calm, "training is not touched"


@pytest.mark.parametrize("when", EVALUATIONS)
def test_on_nan_stop_ends_the_run(when: str, small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match=rf"the evaluation {when} met .*--on-nan skip"):
        go(
            "grpo",
            small_model,
            tmp_path / "run",
            reward=reward(tmp_path, EVALUATIONS[when]),
            eval_tasks=4,
            eval_every=1,
            on_nan="stop",
        )


def test_a_run_that_stopped_for_it_goes_on_with_skip(small_model: Path, tmp_path: Path) -> None:
    calm = reward(tmp_path)
    go("grpo", small_model, tmp_path / "straight", reward=calm, eval_tasks=4, steps=2)
    bad = Path(calm.split(":")[0])
    text = bad.read_text()
    bad.write_text(
        text.replace("calls - 1 in ()", "calls == 5")
    )  # twice before, two steps, then the evaluation after training
    with pytest.raises(FloatingPointError, match="the evaluation after training"):
        go("grpo", small_model, tmp_path / "run", reward=calm, eval_tasks=4, steps=2, on_nan="stop")
    bad.write_text(text)
    burnish.resume(tmp_path / "run", on_nan="skip")
    same_run(tmp_path / "straight", tmp_path / "run")
