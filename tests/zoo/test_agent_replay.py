"""Replay by task, and WebRL's actions and curriculum: numbers by hand, and what each becomes without its idea."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from conftest import SMALL, Tossed, build_cast
from test_agent_credit import live, rows_of
from test_agent_turns import TASK, episode, nothing

from burnish.core.loop import loop
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit.group import group_relative
from burnish.draw.failed import PLACE
from burnish.learn.terms.fit import chance_fit
from burnish.learn.terms.regression import regress_advantage
from burnish.score.heads import end_outputs
from burnish.select.task_replay import TaskStore
from burnish.tasks.table import source
from burnish.zoo.arpo_replay import arpo_replay, replay_where_failed
from burnish.zoo.webrl import (
    beside_successes,
    failed_again,
    fresh_or_familiar,
    mixed_advantage,
    success_advantages,
    webrl,
)


def played(*totals: float, task: Task = TASK) -> Group:
    return Group(task, [episode([total], []) for total in totals])


def test_a_group_without_success_gets_a_past_one() -> None:
    """(1, 0, 0, 0): 1.5, -.5, -.5, -.5."""
    store = TaskStore("s", 8)
    part = replay_where_failed(store)
    part.call([played(0.0, 0.0, 0.0, 0.0)], nothing())
    assert len(store) == 0
    won = played(1.0, 0.0, 0.0, 0.0)
    part.call([won], nothing())
    assert len(store) == 1 and "replayed" not in won.traces[0].tags
    lost = played(0.0, 0.0, 0.0, 0.0)
    others = lost.traces[1:]
    part.call([lost], nothing())
    assert "replayed" in lost.traces[0].tags and lost.traces[1:] == others
    assert lost.traces[0].turns is won.traces[0].turns and lost.traces[0].id is not won.traces[0].id
    group_relative().call([lost], nothing())
    found = [float(trace.streams["adv"][-1]) for trace in lost.traces]
    assert found == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-4)
    assert len(store) == 1, "what came from the store is not stored again"


def test_groups_that_differ_or_score_enough_stay_as_they_are() -> None:
    store = TaskStore("s", 8)
    store.add(played(1.0), played(1.0).traces)
    for group in (played(0.3, 0.3), played(0.0, 0.1), played(0.0, 0.0, task=Task("game", "?", {}, "other"))):
        before = list(group.traces)
        replay_where_failed(store, above=9.0).call([group], nothing())
        assert group.traces == before


def test_a_store_is_first_in_first_out_by_task_and_survives_json() -> None:
    store = TaskStore("s", per_task=2, tasks=2)
    for total in (1.0, 2.0, 3.0):
        store.add(played(total), played(total).traces)
    assert [trace.scores["reward"] for trace in store.of("?")] == [2.0, 3.0]
    again = TaskStore("s", 2, 2)
    again.load_state_dict(json.loads(json.dumps(store.state_dict())))
    assert [t.scores for t in again.of("?")] == [t.scores for t in store.of("?")]
    assert again.of("?")[0].tokens.tolist() == store.of("?")[0].tokens.tolist()
    for key in ("a", "b"):
        store.add(played(1.0, task=Task("game", "?", {}, key)), played(1.0).traces)
    assert set(store.groups) == {"a", "b"}


def test_arpo_with_an_empty_store_is_grpo(small_model: Path) -> None:
    """The same update as without the part that replays: no episode scores more than `above`."""
    found = []
    for low in (0.2, -1.0):
        method = arpo_replay(Tossed(source("guess")), n=3, above=99.0, low=low)
        models = build_cast(method, small_model)
        next(loop(method, models, SMALL, steps=1))
        found.append(torch.cat([p.detach().flatten() for p in models["policy"].module.parameters()]))
    assert torch.equal(*found)


def test_the_advantage_mixes_one_step_and_the_outcome() -> None:
    """r 0, V' .6, V .3, r_T 1, lambda .5: .5 x .3 + .5 x .7."""
    assert mixed_advantage(0.0, 0.6, 0.3, 1.0, 0.5) == pytest.approx(0.5)
    assert mixed_advantage(1.0, 0.0, 0.3, 1.0, 0.9) == pytest.approx(0.7), "at the end both are r - V"


def test_advantages_of_actions_use_the_smaller_head() -> None:
    group = rows_of([0.0, 1.0], [0.0, 0.0])
    logit = {0.3: math.log(0.3 / 0.7), 0.6: math.log(0.6 / 0.4)}
    for row, value in zip(group.traces, (0.3, 0.6), strict=True):
        heads = torch.tensor([logit[value], 5.0])
        row.streams["value"] = heads.expand(len(row), 2).clone()
    success_advantages(0.5).call([group], nothing())
    assert [float(row.streams["gain"][-1]) for row in group.traces] == pytest.approx([0.5, 0.4])
    assert [float(row.streams["success"][-1]) for row in group.traces] == [1.0, 1.0]


def test_the_log_ratio_regresses_the_advantage() -> None:
    """A .46, log-ratio .5, beta 1: .0016. pi = pi_ref and A = 0: 0."""
    for beta, ratio, gain, wanted in ((1.0, 0.5, 0.46, 0.0016), (2.0, 0.5, 0.46, (1.0 - 0.46) ** 2), (1.0, 0, 0, 0)):
        term = regress_advantage(beta, coef=2 * beta**2)
        seen = live([ratio - 1.0, -2.0], [0, 0], ref=[-1.0, -2.0], gain=[gain, gain])
        assert float(term.coef) * float(term.loss(seen)) == pytest.approx(wanted, abs=1e-6)  # type: ignore[arg-type]


def test_success_is_fitted_by_every_head() -> None:
    """Two heads at 0 against success: 2 log 2."""
    seen = live([0.0], [0], success=[1.0])
    seen.outputs["value"] = torch.zeros(1, 2)
    assert chance_fit("success").loss(seen).tolist() == pytest.approx([2 * math.log(2)])
    seen.outputs["value"] = torch.zeros(1)
    assert chance_fit("success").loss(seen).tolist() == pytest.approx([math.log(2)])


@pytest.mark.parametrize(("p", "kept"), [(0.5, False), (0.51, True), (0.95, True), (0.96, False)])
def test_replayed_actions_are_kept_by_their_probability(p: float, kept: bool) -> None:
    (row,) = rows_of([1.0], [0.0]).traces
    row.streams["ref"] = torch.full((len(row),), math.log(p), dtype=torch.float64)
    row.streams["old"] = torch.full((len(row),), math.log(0.3 if kept else 0.7), dtype=torch.float64)  # not asked
    part = fresh_or_familiar("step", 0.5, 0.95)
    part.call([Group(TASK, [row])], nothing())
    assert row.streams["claim:step"].tolist() == [False, True, True]
    row.tags = row.tags | {"replayed"}
    part.call([Group(TASK, [row])], nothing())
    assert bool(row.streams["claim:step"].any()) == kept


def test_past_successes_come_beside_the_batch() -> None:
    store = TaskStore("s", 8)
    part = beside_successes(store, 1.0)
    assert len(part.call([played(1.0, 0.0), played(0.0)], nothing())) == 2 and len(store) == 1
    groups = part.call([played(0.0)], nothing())
    assert len(groups) == 2 and groups[1].traces[0].tags >= {"replayed"} and groups[1].traces[0].scores["reward"] == 1.0
    assert beside_successes(store, 0.0).call([played(0.0)], nothing())[1:] == []


def test_the_critic_chooses_tasks_and_failed_ones_come_back(small_model: Path) -> None:
    method = webrl(source("guess"))
    models = build_cast(method, small_model)

    def value(task: Task, step: Step) -> float:
        start = Trace((Turn(step.models["critic"].chat.prompt(task), "task"),))
        return float(end_outputs([start], step, "critic").sigmoid().min())

    step = Step(Clock(5, 10), models, SMALL)
    open_draw = failed_again(source("guess"), "env", low=0.0, high=1.0, share=0.5, warmup=0)
    first = open_draw.call(step)
    values = sorted(value(task, step) for task in first)
    band = failed_again(source("guess"), "env", low=values[1], high=1.0, share=0.5, warmup=0, scan=50)
    chosen = band.call(step)
    assert len(chosen) == 3 and all(value(task, step) >= values[1] for task in chosen)
    assert open_draw.saw is not None
    lost = Group(first[1], [Trace((), scores={"reward": 0.0})])
    open_draw.saw([Group(first[0], [Trace((), scores={"reward": 1.0})]), lost], step)
    again = open_draw.call(step)
    assert again[0].given[PLACE] == first[1].given[PLACE] and again[0].key == first[1].key
    assert len({task.key for task in [*first, *again[1:]]}) == 5, "the others are new"
    (memory,) = open_draw.state
    kept = json.loads(json.dumps(memory.state_dict()))
    assert kept == {"indices": [first[1].given[PLACE]], "place": 5}


@pytest.mark.slow
def test_games_are_learned(tmp_path: Path) -> None:
    from burnish import train

    options = {"prompts": 16, "max_new_tokens": 8, "eval_tasks": 100, "eval_every": 0, "seed": 0}
    result = train("arpo_replay", task="guess:1", steps=20, out=str(tmp_path / "run"), **options)
    before, after = (outcome.sampled.accuracy for outcome in (result.before, result.after))  # type: ignore[union-attr]
    assert after.mean > before.mean + 0.1
