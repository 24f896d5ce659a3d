"""Replies without a reward that are dropped (--on-reward-failure drop): every method goes on with what is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, arguments_for, build_cast, coin

from burnish.core.loop import loop
from burnish.core.randomness import key_of
from burnish.core.scorer import is_failed, mark_failed, without_failed
from burnish.core.task import Task, Verdict
from burnish.core.types import Group, Trace, Turn
from burnish.methods.table import METHODS
from burnish.reward_functions.reward import LocalReward
from burnish.tasks.scoring import FunctionScoring
from burnish.tasks.table import source
from burnish.tasks.task_set import task_set

# Methods that compare certain replies: with a greedy one, an opponent's, the reference's, a demonstration, probes.
COMPARING = ("aapo", "cgpo_crpg", "cgpo_crraft", "grao", "nash_ema", "nash_md", "remax", "spo_chain")


class Flaky(FunctionScoring):
    """A reward that fails for all but every `share`-th reply, by the text."""

    share = 2

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        found = super().verdicts(tasks, replies)
        lost = Verdict(0.0, False, "it failed", failed=True)
        return [lost if key_of("flaky", text) % self.share else one for text, one in zip(replies, found, strict=True)]


def trains(name: str, share: int, base: Path, teacher: Path) -> None:
    scoring = Flaky(LocalReward(coin))
    scoring.share = share
    plain = task_set(source(METHODS[name].trial.get("task", "sort")))
    tasks = replace(plain, scoring=scoring, rewarded_by="function", drop_failed=True)
    method = METHODS[name].build(tasks, **arguments_for(name, teacher))
    for report in loop(method, build_cast(method, base), SMALL, steps=2):
        assert all(group.traces for groups in report.groups.values() for group in groups)


@pytest.mark.parametrize("share", [2, 6])
@pytest.mark.parametrize("name", ["grpo", "rloo", *COMPARING])
def test_methods_go_on_with_what_is_left(name: str, share: int, small_model: Path, other_model: Path) -> None:
    trains(name, share, small_model, other_model)


JUDGED = [name for name, entry in METHODS.items() if "env" not in source(entry.trial.get("task", "sort")).gives]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*JUDGED} - {"grpo", "rloo", *COMPARING}))
def test_every_method_goes_on_with_what_is_left(name: str, small_model: Path, other_model: Path) -> None:
    for share in (2, 6):
        trains(name, share, small_model, other_model)


def test_a_group_of_several_kinds_is_dropped_whole() -> None:
    def group(*tags: str) -> Group:
        prompt, reply = Turn(torch.tensor([1]), "task"), Turn(torch.tensor([2]), "policy")
        traces = [Trace((prompt, reply), i, {}, tags=frozenset({tag})) for i, tag in enumerate(tags)]
        mark_failed(traces[0], "why")
        return Group(Task("question", "p", {}, "k"), traces)

    left = without_failed([group("sample", "sample"), group("greedy", "sample"), group("sample")], is_failed)
    assert [len(one.traces) for one in left] == [1]
