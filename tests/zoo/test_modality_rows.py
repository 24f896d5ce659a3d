"""Papers on pictures whose formulas need none: numbers by hand, and what each becomes when its idea is off."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.learn.term import Live
from burnish.methods.table import find
from burnish.score.compared import Said
from burnish.tasks.table import source
from burnish.zoo.deepvideo_r1 import regress_group
from burnish.zoo.mm_rlhf import scaled_beta
from burnish.zoo.temporal_r1 import interval, reward, spread
from burnish.zoo.ton import EMPTY, thought_dropout, without_thought


def live(logp: Tensor, row: list[int], group: list[int], pairs: list[tuple[int, int]], **streams: list[float]) -> Live:
    return Live(
        outputs={"logp": logp, "entropy": torch.zeros_like(logp)},
        streams={name: torch.tensor(values, dtype=torch.float64) for name, values in streams.items()},
        row=torch.tensor(row),
        rows=len(group),
        pairs=torch.tensor(pairs).reshape(-1, 2),
        lists=[],
        group=torch.tensor(group),
        clock=Clock(0, 1),
    )


def test_reg_grpo_by_hand_and_reinforce_at_the_start() -> None:
    """Log-ratios 0.3 and -0.1 of two replies, centred 0.2 and -0.2; A 1, -1; tau 2: (0.4 - 1)^2 = 0.36 for both."""
    logp = torch.tensor([0.1, 0.2, -0.1], dtype=torch.float64, requires_grad=True)
    sees = live(logp, [0, 0, 1], [0, 0], [], gain=[1.0, 1.0, -1.0], old=[0.0, 0.0, 0.0])
    assert regress_group(2.0).loss(sees).tolist() == pytest.approx([0.36])
    start = live(logp, [0, 0, 1], [0, 0], [], gain=[1.0, 1.0, -1.0], old=logp.tolist())
    gradient = torch.autograd.grad(regress_group(2.0).loss(start).sum(), logp)[0]
    assert gradient.tolist() == pytest.approx([-2 * 2 * 1 / 2, -2 * 2 * 1 / 2, 2 * 2 * 1 / 2])  # mean of two replies


def test_reg_grpo_without_the_spread_is_rebel() -> None:
    """Three replies: the mean over pairs of REBEL's loss (eta = 1 / tau) is 2 n^2 / (n (n - 1)) = 3 times as much."""
    ratio, rewards, tau = [0.3, -0.1, 0.7], [1.0, 0.0, 0.25], 1.5
    logp = torch.tensor(ratio, dtype=torch.float64)
    centred = [r - sum(rewards) / 3 for r in rewards]
    ours = float(regress_group(tau).loss(live(logp, [0, 1, 2], [0, 0, 0], [], gain=centred, old=[0.0] * 3)))
    pairs = [(0, 1), (0, 2), (1, 2)]
    rebel: Any = find("rebel").build(source("add"), eta=1 / tau).phases[0].learn.terms[0]  # type: ignore[attr-defined]
    theirs = rebel.loss(live(logp, [0, 1, 2], [0, 0, 0], pairs, reward=rewards, old=[0.0] * 3)).mean()
    assert float(theirs) == pytest.approx(3 * ours)


@pytest.mark.parametrize(
    ("text", "wanted"), [("2 5", (2, 5)), ("2.5 to 7", (2.5, 7)), ("1, 4", (1, 4)), ("left", None), ("3", None)]
)
def test_intervals_are_read(text: str, wanted: tuple[float, float] | None) -> None:
    assert interval(text) == wanted


@pytest.mark.parametrize(
    ("answer", "value"),
    [("2 5", 1.0), ("3 7", 0.5 + 0.5 * 2 / 5), ("6 7", 0.5), ("left", 0.0)],
)
def test_half_for_the_overlap_over_the_hull_and_half_for_the_format(answer: str, value: float) -> None:
    """2..5 against 3..7: two of five. Where they do not meet, the format is left."""
    task = Task("question", "?", {"answer": "2 5"}, "x")
    assert reward(Said(task, answer, answer, False, 0.0, Clock(0, 1))) == pytest.approx(value)
    other = Task("question", "?", {"answer": "left"}, "x")
    assert reward(Said(other, answer, answer, True, 1.0, Clock(0, 1))) is None


def test_groups_whose_rewards_do_not_differ_are_left_out() -> None:
    """(0, 0, 0) goes, (0.2, 0.4) stays; below 0 all stay."""
    groups = []
    for values in ((0.0, 0.0, 0.0), (0.2, 0.4)):
        traces = [Trace((Turn(torch.arange(2), "task"),), scores={"compared": value}) for value in values]
        groups.append(Group(Task("question", "?", {}, "x"), traces))
    step: Any = None
    assert spread(0.0).call(groups, step) == groups[1:] and spread(0.3).call(groups, step) == []
    assert spread(-1.0).call(groups, step) == groups


def test_ript_is_leave_one_out() -> None:
    """1, 0, 0 give 1, -1/2, -1/2."""
    credit: Any = find("ript_vla").build(source("add")).phases[0].credit
    traces = [
        Trace((Turn(torch.arange(2), "task"), Turn(torch.arange(1), "policy", torch.zeros(1))), scores={"reward": r})
        for r in (1.0, 0.0, 0.0)
    ]
    next(iter(credit)).call([Group(Task("question", "?", {}, "x"), traces)], None)
    assert [float(trace.streams["adv"][-1]) for trace in traces] == pytest.approx([1.0, -0.5, -0.5])


def test_mm_dpo_scales_beta_by_the_margin() -> None:
    """beta 0.1, w 0.5, f 0.4: 0.12; a margin of 0 leaves beta, a very wrong one the floor."""
    margin = torch.tensor([-math.log(0.6) / 2, 0.0, -50.0], dtype=torch.float64)
    assert scaled_beta(0.1, margin, 0.5, 2.0).tolist() == pytest.approx([0.12, 0.1, 1e-3])
    logp = torch.tensor([-0.2, -0.5], dtype=torch.float64)
    sees = live(logp, [0, 1], [0, 0], [(0, 1)], ref=[-0.3, -0.3], reward=[1.0, 0.0])
    terms = [
        find(name).build(source("add"), **options).phases[0].learn.terms[0]  # type: ignore[attr-defined]
        for name, options in (("mm_dpo", {"weight": 0.0}), ("dpo", {}), ("mm_dpo", {"weight": 0.5, "steepness": 2.0}))
    ]
    plain, dpo, scaled = (float(term.loss(sees)) for term in terms)
    assert plain == pytest.approx(dpo)
    by = 0.1 * (1 + 0.5 * (1 - math.exp(-2)))
    assert scaled == pytest.approx(math.log1p(math.exp(-by * 0.3)))


def test_thoughts_are_emptied_in_their_format() -> None:
    assert without_thought("<think>long\nlines</think>answer: 4") == f"{EMPTY}answer: 4"
    assert without_thought("2 + 2\n= 4\nanswer: 4") == "answer: 4" and without_thought("four") == "four"


@pytest.mark.parametrize(("chance", "emptied"), [(0.0, 0), (1.0, 8)])
def test_the_share_of_empty_thoughts_is_the_chance(chance: float, emptied: int) -> None:
    """At 0 it is imitation as it was."""
    tasks = [source("countdown").task("train", index) for index in range(8)]
    counted: list[int] = []
    step: Any = type("Step", (), {})()
    step.clock = Clock(0, 4)
    step.notes = type("Notes", (), {"count": lambda self, name, n: counted.append(n)})()
    drawn: Any = find("ton").build(source("countdown")).phases[0].draw
    from dataclasses import replace

    given = replace(drawn, call=lambda step: tasks)
    changed = thought_dropout(given, chance).call(step)
    assert sum(a.given["demo"] != b.given["demo"] for a, b in zip(tasks, changed, strict=True)) == emptied
    assert len(counted) == emptied
