"""Rewards computed while other replies are still being sampled (--reward-workers): same results."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, coin
from runs import function, go

from burnish.core.types import Task
from burnish.core.types_json import group_to_record
from burnish.engine.protocol import ALONE, GenerateOptions
from burnish.methods.table import METHODS
from burnish.reward_functions.timed import TimedReward
from burnish.run.pipeline import loop_as_set
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded


class Slow:
    """A reward that takes its time, and notes what it was asked for."""

    def __init__(self, seconds: float = 0.01) -> None:
        self.seconds, self.calls = seconds, []

    def __call__(self, completions: list[str]) -> list[float]:
        time.sleep(self.seconds)
        self.calls.append(list(completions))
        return coin(completions)


def run(model: Path, workers: int, name: str = "grpo", **settings: Any) -> tuple[list[Any], Any, Slow, list[str]]:
    """Metrics and groups of two steps, the last weights, the reward, and the order of events."""
    told = replace(SMALL, **{"max_new_tokens": 90, "prompts": 4, **settings})
    slow, events = Slow(), []
    paid = rewarded(source("sort"), slow, workers=workers)
    method = METHODS[name].build(paid, n=4)
    models = build_cast(method, model, told)
    generate, begin = models["policy"].engine.generate, paid.scoring.begin

    def watched(asked: Any, options: GenerateOptions = ALONE) -> Any:
        heard = options.on_sample
        told_ = heard and (lambda *sample: (events.append("reply"), heard(*sample)))
        return generate(asked, replace(options, on_sample=told_))

    models["policy"].engine.generate = watched  # type: ignore[method-assign]
    paid.scoring.begin = lambda *asked: (events.append("judge"), begin(*asked))[1]  # type: ignore[method-assign]
    reports = []
    for report in loop_as_set(method, models, told, steps=2):
        reports.append((report.metrics, [group_to_record(group) for group in report.groups["main"]]))
        events.append("step")
    return reports, [p.detach().clone() for p in models["policy"].module.parameters()], slow, events


@pytest.mark.parametrize("more", ({}, {"chunk": 50}), ids=["whole", "in chunks"])
def test_groups_are_judged_while_others_are_written_with_the_same_result(small_model: Path, more: dict) -> None:
    plain, weights, _, _ = run(small_model, 0, **more)
    eager, others, slow, events = run(small_model, 3, **more)
    assert plain == eager
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))
    assert [len(texts) for texts in slow.calls] == [4] * 8  # group by group
    assert events.count("judge") == 8
    assert "reply" in events[events.index("judge") : events.index("step", events.index("judge"))]


def test_calls_run_at_once_and_answer_in_order() -> None:
    """Four workers: the wait is a quarter of the sum of the waits, and each answer is that of its own question."""
    slow = Slow(0.15)
    paid = rewarded(source("sort"), slow, workers=4)
    task = source("sort").task("train", 0)
    began = time.monotonic()
    calls = [paid.scoring.begin([task] * 2, [f"{k}", f"{k} again"]) for k in range(8)]
    found = paid.scoring.heard([one for call in calls for one in call.result()])
    assert time.monotonic() - began < 0.75 * 8 * slow.seconds
    assert [v.score for v in found] == coin([text for k in range(8) for text in (f"{k}", f"{k} again")])


def test_with_a_lag_too(small_model: Path) -> None:
    """The thread that samples hands groups over as well; what is behind the pipeline's copy cannot be watched from
    here.
    """
    plain, weights, _, _ = run(small_model, 0, lag=1, max_new_tokens=40)
    eager, others, slow, _ = run(small_model, 3, lag=1, max_new_tokens=40)
    assert plain == eager and len(slow.calls) == 2 * 4
    assert all(torch.equal(a, b) for a, b in zip(weights, others, strict=True))


def test_a_join_of_rollouts_is_judged_reply_by_reply_once(small_model: Path) -> None:
    plain, _, _, _ = run(small_model, 0, "remax", max_new_tokens=20)
    eager, _, slow, _ = run(small_model, 2, "remax", max_new_tokens=20)
    assert plain == eager
    assert sum(map(len, slow.calls)) == 2 * 4 * 5  # four samples and the greedy one, each once


TIMED = """
import hashlib, time

def f(completions):
    found = [float(hashlib.md5(text.encode()).digest()[0] % 2) for text in completions]
    for text in completions:
        if hashlib.md5(text.encode()).digest()[0] % 6 == 0:
            raise KeyError("one reply in six")
    return found

def never(completions):
    raise KeyError("always")
"""


def test_with_a_time_limit_each_worker_has_a_process(small_model: Path, tmp_path: Path) -> None:
    """A failure affects only its own reply, in any worker; results equal those of one call a step."""
    found = []
    for workers in (0, 2):
        reward = function(tmp_path / "r.py", TIMED, "f")
        told = {"reward": reward, "reward_timeout": 20.0, "reward_workers": workers, "steps": 2, "n": 4}
        found.append(go("grpo", small_model, tmp_path / f"run{workers}", **told).metrics)
    assert found[0] == found[1] and sum(row.get("reward_failures", 0) for row in found[0]) > 0
    with pytest.raises(ValueError, match="reward never raised KeyError: 'always' at r.py, line .*; fix the function"):
        go(
            "grpo",
            small_model,
            tmp_path / "bad",
            reward=function(tmp_path / "r.py", TIMED, "never"),
            reward_timeout=20.0,
            reward_workers=2,
            steps=1,
        )


def test_one_group_that_fails_throughout_does_not_stop_the_run(tmp_path: Path) -> None:
    """Whether a function ever works is asked of the whole batch, not of a worker's share of it."""
    code = "def f(completions, bad):\n    if any(bad):\n        raise KeyError('bad')\n"
    code += "    return [1.0] * len(completions)\n"
    timed = TimedReward(function(tmp_path / "r.py", code, "f"), 20.0)
    paid = rewarded(source("sort"), timed, workers=2)
    tasks = [Task("question", "?", {"bad": bad}, str(bad)) for bad in (True, False)]
    calls = [paid.scoring.begin([task] * 2, ["a", "b"]) for task in tasks]
    verdicts = paid.scoring.heard([one for call in calls for one in call.result()])
    assert [verdict.failed for verdict in verdicts] == [True, True, False, False]
    with pytest.raises(ValueError, match="raised KeyError: 'bad'"):
        paid.verdicts([tasks[0]] * 2, ["a", "b"])


def test_workers_without_a_function_are_refused(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--reward-workers needs a reward function, but there is no --reward"):
        go("grpo", small_model, tmp_path / "run", reward_workers=2)
