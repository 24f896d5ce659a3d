"""Reward models on the data that they are made for: one step each on rows with the columns that they read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast
from test_reward_models import reward_model

from burnish.compose.rewards import with_scorers
from burnish.core.loop import run_phase
from burnish.core.step import Step
from burnish.core.types import Clock, Group
from burnish.methods.table import find
from burnish.reward_functions.resolve import read_rewards
from burnish.rewards.read import named_rewards, split_rewards
from burnish.tasks.resolve import resolve_task
from burnish.tasks.source import Source
from burnish.tasks.table import source
from burnish.tasks.task_set import unscored


def rows_of(path: Path, **columns: Any) -> Source:
    """Eight rows: every column is a function of the row's number."""
    rows = [{"prompt": f"{i} and {i}?", **{name: column(i) for name, column in columns.items()}} for i in range(8)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return resolve_task(str(path))


def one_step(method_name: str, task: Source, model: Path, **options: Any) -> tuple[list[Group], Step]:
    method = find(method_name).build(task, **options)
    step = Step(Clock(0, 1), build_cast(method, model), SMALL, product=method.product)
    return run_phase(method.phases[0], step, {}, []), step


PAIR = {"chosen": lambda i: f"it is {2 * i}", "rejected": lambda i: f"it is {3 * i + 1}"}


@pytest.mark.parametrize("name", ["ranked_reward_model", "pessimistic_mle"])
def test_ranked_replies_of_the_data(name: str, small_model: Path, tmp_path: Path) -> None:
    """Three replies with scores 3, 1, 2: one list, best first."""
    task = rows_of(tmp_path / "lists.jsonl", responses=lambda i: [f"a{i}", "b", "c"], scores=lambda i: [3, 1, 2])
    groups, step = one_step(name, task, small_model)
    chat = step.models["rm"].chat
    assert [chat.text(trace.turns[-1].tokens)[0] for trace in groups[0].traces] == ["a", "c", "b"]
    assert groups[0].lists == [(0, 1, 2)] and "start" not in step.models.by_name


def test_the_best_ranked_reply_is_the_reference(small_model: Path, tmp_path: Path) -> None:
    task = rows_of(tmp_path / "lists.jsonl", responses=lambda i: ["best", "good", "bad"], scores=lambda i: [3, 2, 1])
    groups, step = one_step("polar", task, small_model)
    chat = step.models["rm"].chat
    said = [chat.text(trace.tokens) for trace in groups[0].traces]
    assert all("best" in text.split("=== candidate ===")[0] for text in said)
    assert "good" in said[0] and "bad" in said[1] and groups[0].pairs == [(0, 1)]
    task = rows_of(tmp_path / "pairs.jsonl", reference=lambda i: "model", **PAIR)
    groups, step = one_step("polar", task, small_model)
    assert "model" in chat.text(groups[0].traces[0].turns[0].tokens)
    short = rows_of(tmp_path / "two.jsonl", responses=lambda i: ["best", "bad"], scores=lambda i: [2, 1])
    assert one_step("polar", short, small_model)[0] == [], "two replies are no triple"


def test_a_classifier_of_labelled_replies(small_model: Path, tmp_path: Path) -> None:
    task = rows_of(tmp_path / "labels.jsonl", completion=lambda i: f"text {i}", label=lambda i: i % 2 == 0)
    groups, _ = one_step("discriminator", task, small_model)
    marks = {group.task.given["label"]: group.traces[0].streams["label"][0].item() for group in groups}
    assert set(marks.items()) <= {(True, 1.0), (False, -1.0)}


def test_ratings_of_demonstrations_with_gaps(small_model: Path, tmp_path: Path) -> None:
    task = rows_of(tmp_path / "rated.jsonl", completion=lambda i: "hm", helpful=lambda i: i if i % 2 else None)
    groups, step = one_step("rating_model", task, small_model, attributes="helpful, length")
    for group in groups:
        rated = group.traces[0].streams["ratings"][0].tolist()
        given = group.task.given.get("helpful")
        assert math.isnan(rated[0]) if given is None else rated[0] == given
        assert rated[1] == pytest.approx(len(group.traces[0].turns[-1]) / SMALL.max_new_tokens)
    assert 0.5 <= step.notes.means()["rating/rated"] <= 1.0
    with pytest.raises(ValueError, match="attributes names nothing to rate"):
        find("rating_model").build(task, attributes=" , ")


@pytest.mark.parametrize("method", ["rating_model", "armorm"])
def test_a_misspelt_attribute_is_no_missing_rating(method: str, tmp_path: Path) -> None:
    """It would train at a loss of 0: every rating would be missing."""
    task = rows_of(tmp_path / "rated.jsonl", **PAIR, chosen_helpful=lambda i: i, rejected_helpful=lambda i: None)
    find(method).build(task, attributes="helpful,length")
    with pytest.raises(ValueError, match="no column 'helpfull' or 'chosen_helpfull' or"):
        find(method).build(task, attributes="length,helpfull")


@pytest.mark.parametrize("method", ["maxmin_rm", "vpl"])
def test_users_of_whom_the_data_says_nothing_are_refused(method: str, tmp_path: Path) -> None:
    task = rows_of(tmp_path / "pairs.jsonl", **PAIR, who=lambda i: i % 3)
    find(method).build(task, user="who")
    with pytest.raises(ValueError, match="has no column 'user', which says who compared the replies"):
        find(method).build(task)


def test_fewer_users_than_groups_would_leave_a_head_untrained(tmp_path: Path) -> None:
    task = rows_of(tmp_path / "pairs.jsonl", **PAIR, user=lambda i: i % 3)
    find("maxmin_rm").build(task, groups=3)
    with pytest.raises(ValueError, match="has 3 values in its column 'user', fewer than groups=4"):
        find("maxmin_rm").build(task, groups=4)
    find("maxmin_rm").build(rows_of(tmp_path / "plain.jsonl", **PAIR), groups=1)


def test_the_traces_of_tools_come_with_the_data(small_model: Path, tmp_path: Path) -> None:
    task = rows_of(tmp_path / "t.jsonl", **PAIR, chosen_trace=lambda i: "looked up", rejected_trace=lambda i: "")
    groups, step = one_step("themis", task, small_model)
    chat, (chosen, rejected) = step.models["judge"].chat, groups[0].traces
    assert chat.text(chosen.tokens[chosen.by("tool")]) == "looked up" and not rejected.by("tool").any()
    assert int(chosen.by("score").sum()) == int(rejected.by("score").sum()) == 1
    assert chosen.streams["claim:trace"].equal(chosen.by("tool"))


def test_directions_weigh_the_outputs_of_a_reward_model(small_model: Path, tmp_path: Path) -> None:
    path = reward_model(tmp_path / "rm", 3)
    groups, step = one_step("dpa", source("sort"), small_model, n=2, reward_model=str(path))
    (trace,) = groups[0].traces
    v = trace.note["direction"]
    mask = torch.arange(len(trace)) == len(trace) - 1
    outputs = step.models["rm"].streams([trace], [mask], {"score"}, 4096)[0]["score"][-1].tolist()
    assert trace.scores["directed"] == pytest.approx(v[0] * outputs[0] + v[1] * outputs[1], abs=1e-5)
    with pytest.raises(ValueError, match="has one output, but a direction weighs two"):
        one_step("dpa", source("sort"), small_model, n=2, reward_model=str(reward_model(tmp_path / "one", 1)))


def test_the_other_objective_may_be_a_reward_model_or_brevity(small_model: Path, tmp_path: Path) -> None:
    path = reward_model(tmp_path / "rm", 1)
    groups, _ = one_step("modpo", source("sort"), small_model, reward_model=str(path))
    trace = groups[0].traces[0]
    assert trace.streams["objective"][0].item() == pytest.approx(trace.scores["reward"])
    groups, _ = one_step("modpo", source("sort"), small_model)
    trace = groups[0].traces[0]
    assert trace.scores["reward"] == pytest.approx(-int(trace.by("demo").sum()) / SMALL.max_new_tokens)
    with pytest.raises(ValueError, match="not both; leave one out"):
        find("modpo").build(source("sort"), reward_model=str(path), other=str(path))


def test_pessimism_by_pairs_of_another_file(small_model: Path, tmp_path: Path) -> None:
    rows_of(tmp_path / "pairs.jsonl", **PAIR)
    path, task = reward_model(tmp_path / "rm", 1), source("sort")
    found = {}
    for coef in (0.0, 1.0):
        text = f"pessimistic({path}, coef={coef}, per=reply, data_file={tmp_path}/pairs.jsonl, rows=4)"
        method = with_scorers(
            find("grpo").build(unscored(task), n=2), named_rewards(split_rewards(read_rewards(text))[1], task), []
        )
        groups = run_phase(method.phases[0], Step(Clock(0, 1), build_cast(method, small_model), SMALL), {}, [])
        found[coef] = [trace.scores["reward"] for group in groups for trace in group.traces]
    assert all(low < high for low, high in zip(found[1.0], found[0.0], strict=True)), "a bound is below the estimate"
