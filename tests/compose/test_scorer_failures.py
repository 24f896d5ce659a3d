"""A scorer that raises, gives NaN or dies costs its own samples; a run in which too much fails ends with the reason."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import SMALL
from shaping import a_step, group, trace
from test_scorers import TASK, one_step

import burnish
from burnish.api.train import resume
from burnish.compose.guard import guarded
from burnish.compose.rewards import with_scorers
from burnish.core.loop import Report
from burnish.core.method import Part
from burnish.core.scorer import Named, Scorer, is_failed
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Trace
from burnish.methods.table import find
from burnish.reward_functions.resolve import read_rewards
from burnish.run.folder import Folder
from burnish.run.observers import Observer
from burnish.run.reward_failures import RewardFailures
from burnish.run.reward_versions import change, present, record
from burnish.tasks.task_set import unscored


def scoring(score: Callable[[Trace, Group], float]) -> Part:
    """A reward called "odd"."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for own in groups:
            for one in own.traces:
                one.scores["reward/odd"] = score(one, own)
        return groups

    return Part(name="odd", call=call, writes=frozenset({"score:reward/odd"}))


def shaping(score: Callable[[Trace, Group], float]) -> Part:
    """A shape called "odd"."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for own in groups:
            for one in own.traces:
                one.scores["reward"] += score(one, own)
        return groups

    return Part(name="odd", call=call, reads=frozenset({"score:reward"}), updates=frozenset({"score:reward"}))


def raising_on_b(one: Trace, own: Group) -> float:
    if own.task.key == "b" and one.index == 1:
        raise RuntimeError("bad reply\nsecond line")
    return 1.0


def test_an_exception_costs_the_group_on_which_it_is_raised() -> None:
    groups = [group(trace(0.5), trace(0.5), key=key) for key in "abc"]
    guarded(shaping(raising_on_b), "odd", "score:reward").call(groups, a_step())
    assert [[is_failed(t) for t in own.traces] for own in groups] == [[False] * 2, [True] * 2, [False] * 2]
    assert [[t.scores["reward"] for t in own.traces] for own in groups] == [[1.5, 1.5], [0.5, 0.5], [1.5, 1.5]]
    assert groups[1].traces[0].note["why"] == "odd raised RuntimeError: bad reply"


def test_an_exception_on_every_group_ends_the_run() -> None:
    def never(one: Trace, own: Group) -> float:
        raise KeyError("column")

    with pytest.raises(ValueError, match="odd raised on every group of the step: KeyError: 'column'"):
        guarded(scoring(never), "odd", "score:reward/odd").call([group(trace(), key=k) for k in "ab"], a_step())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_cost_their_own_reply(bad: float) -> None:
    own = group(trace(0.5), trace(0.5))
    guarded(shaping(lambda one, _: bad if one.index else 1.0), "odd", "score:reward").call([own], a_step())
    assert [is_failed(t) for t in own.traces] == [False, True]
    assert [t.scores["reward"] for t in own.traces] == [1.5, 0.5]
    assert own.traces[1].note["why"] == f"odd gave {bad}"


def test_a_failed_dense_reward_has_no_token_rewards() -> None:
    def call(groups: list[Group], step: Step) -> list[Group]:
        for one in groups[0].traces:
            one.streams["dense/odd"] = torch.full((len(one),), math.inf if one.index else 1.0)
        return groups

    own = group(trace(), trace())
    part = Part(name="odd", call=call, writes=frozenset({"stream:dense/odd"}))
    guarded(part, "odd", "stream:dense/odd").call([own], a_step())
    assert [is_failed(t) for t in own.traces] == [False, True]
    assert own.traces[1].streams["dense/odd"].isnan().all()


@pytest.mark.parametrize("drop", [False, True])
def test_a_step_goes_on_without_the_failed(drop: bool, small_model: Path) -> None:
    part = scoring(lambda one, _: math.nan if one.index == 0 else 1.0)
    method = with_scorers(find("grpo").build(unscored(TASK), n=4), [Named("odd", Scorer(part=part))], [], drop)
    metrics, groups = one_step(method, small_model)
    assert metrics["reward_failures"] == SMALL.prompts and "refused" not in metrics
    assert metrics["reward/odd"] == 1.0  # over those that it scored
    assert [len(own.traces) for own in groups] == [4 - drop] * SMALL.prompts


def report(failed: int, replies: int) -> Report:
    metrics = {"length": 4.0, "sampled_tokens": 4 * replies, "reward_failures": failed}
    return Report(Clock(0, 1), metrics if failed else {k: v for k, v in metrics.items() if k != "reward_failures"}, {})


def test_the_share_of_failures_is_limited() -> None:
    few = RewardFailures(0.5, dropped=False)
    for _ in range(20):
        few.saw(report(8, 16), "hung")  # exactly half
    bad_start = RewardFailures(0.5, dropped=False)
    for _ in range(2):
        bad_start.saw(report(16, 16), "hung")  # two steps are too few to end a run
    many = RewardFailures(0.5, dropped=True)
    many.saw(report(9, 7), "hung")
    many.saw(report(9, 7), "hung")
    with pytest.raises(ValueError, match="56% of the replies of the last 3 steps got no reward: hung; .*--max-reward"):
        many.saw(report(9, 7), "hung")
    never = RewardFailures(1.0, dropped=True)
    for _ in range(9):
        never.saw(report(16, 0), "hung")


class Heard(Observer):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warned(self, said: str) -> None:
        self.warnings.append(said)


FLAKY = """
def flaky(completions, **columns):
    if len(completions) > 1:
        raise RuntimeError("one by one, please")
    if sum(map(ord, completions[0])) % 3:
        raise ValueError("cannot read this reply")
    return [1.0]
"""


def test_a_run_ends_when_most_replies_have_no_reward(small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(FLAKY)
    options = {"model": str(small_model), "task": "sort", "steps": 6, "prompts": 2, "n": 8, "eval_tasks": 0}
    with pytest.raises(ValueError, match="of the last 3 steps got no reward: .*cannot read this reply"):
        burnish.train("grpo", reward=f"{tmp_path}/own.py:flaky", out=str(tmp_path / "run"), **options)
    result = burnish.train(
        "grpo", reward=f"{tmp_path}/own.py:flaky", max_reward_failures=1, out=str(tmp_path / "more"), **options
    )
    assert len(result.metrics) == 6 and all(row["reward_failures"] for row in result.metrics)


def test_versions_are_recorded_and_a_change_is_said(small_model: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("def f(completions, **columns):\n    return [float(len(c)) for c in completions]\n")
    options = {"model": str(small_model), "task": "sort", "prompts": 2, "n": 2, "eval_tasks": 0, "save_every": 1}
    folder = tmp_path / "run"
    burnish.train("grpo", reward=f"{own}:f", shape="overlong(0.5)", steps=1, out=str(folder), **options)
    (first,) = json.loads((folder / "scorers.json").read_text())
    assert first["after"] == 0 and [len(v) for v in first["versions"].values()] == [10, 10]
    own.write_text("def f(completions, **columns):\n    return [-float(len(c)) for c in completions]\n")
    heard = Heard()
    resume(folder, steps=2, observer=heard)
    before, after = json.loads((folder / "scorers.json").read_text())
    assert before == first and after["after"] == 1 and after["versions"]["overlong"] == first["versions"]["overlong"]
    said = [text for text in heard.warnings if "other versions of the rewards" in text]
    assert said == [
        f"from step 2 on other versions of the rewards score (f {first['versions']['f']} -> {after['versions']['f']}): "
        "they may mean something else now"
    ]


def test_a_damaged_or_missing_record_is_no_error(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    now = present(read_rewards("math,exact*0.5"), "alp(1e-4),overlong")
    assert list(now) == ["math", "exact", "alp", "overlong"] and all(len(v) == 10 for v in now.values())
    assert change(folder, 3, now) == ""
    (tmp_path / "scorers.json").write_text("{broken")
    assert change(folder, 3, now) == ""
    record(folder, 0, now)
    assert change(folder, 3, now) == "" and change(folder, 3, {**now, "alp": "other"}) != ""
