"""Chunked sampling (--chunk): no reply is lost or learned twice, and every token has its weight version."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, build_method
from guards import guards
from runs import halted_after
from test_lag import CURRICULUM, options_of

import burnish
from burnish.api.train import resume
from burnish.checkpoint.diff import differences
from burnish.compose.chunked import Unfinished, chunked, memories_of
from burnish.core.loop import Report
from burnish.core.method import Method
from burnish.core.parts import Part, chain
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.core.types_json import group_to_record
from burnish.run.pipeline import Pipeline, loop_as_set
from burnish.run.train import Observer

pytestmark = guards(
    "run/pipeline.py", "compose/chunked.py", "rollout/starts.py", "core/loop.py", "core/pending_step.py"
)

LONG = replace(SMALL, max_new_tokens=24)


def run(method: Method, model: Path, steps: int = 5, **settings: Any) -> tuple[list[Report], list[torch.Tensor]]:
    """The reports of a run in memory, and the weights that it ends with."""
    told = replace(LONG, **settings)
    models = build_cast(method, model, told)
    found = list(loop_as_set(method, models, told, steps=steps))
    return found, [p.detach().clone() for model in models for p in model.module.parameters()]


def learned(reports: list[Report]) -> dict[tuple[str, int], Trace]:
    """Every trace that was learned from, by task and index: each once."""
    found: dict[tuple[str, int], Trace] = {}
    for group in (group for report in reports for group in report.groups["main"]):
        for trace in group.traces:
            assert found.setdefault((group.task.key, trace.index), trace) is trace
    return found


# -------------------------------------------------------------------------------------------------- limiting identities


@pytest.mark.parametrize(("name", "lag"), [("grpo", 0), ("grpo", 1), ("remax", 0), ("prefix_rft", 1)])
def test_a_chunk_as_long_as_the_longest_reply_is_the_run_without_chunks(
    name: str, lag: int, small_model: Path, other_model: Path
) -> None:
    found = []
    for chunk in (None, 24):
        reports, weights = run(build_method(name, other_model), small_model, 3, chunk=chunk, lag=lag)
        metrics = [{k: v for k, v in r.metrics.items() if k not in ("unfinished", "staleness")} for r in reports]
        records = [[group_to_record(group) for groups in r.groups.values() for group in groups] for r in reports]
        found.append((metrics, records, weights))
        assert all(r.metrics.get("unfinished", 0) == 0 for r in reports)
    (metrics, replies, weights), other = found
    assert metrics == other[0] and replies == other[1]
    assert all(torch.equal(a, b) for a, b in zip(weights, other[2], strict=True))


@pytest.mark.parametrize(("chunk", "lag"), [(1, 0), (5, 2), (16, 0)])
def test_weights_that_rest_write_the_same_replies_in_chunks_of_any_size(
    chunk: int, lag: int, small_model: Path, other_model: Path
) -> None:
    """At a learning rate of 0: the same tasks, tokens and log-probs as without chunks, so the same lengths, each reply
    once.
    """
    whole, pieces = (
        learned(run(build_method("grpo", other_model), small_model, 6, chunk=c, lag=lag, lr=0.0)[0])
        for c in (None, chunk)
    )
    assert whole.keys() == pieces.keys() and len(whole) == 6 * LONG.prompts * 4
    for place, trace in whole.items():
        other = pieces[place]
        assert torch.equal(trace.tokens, other.tokens) and trace.note == other.note and trace.tags == other.tags
        torch.testing.assert_close(trace.turns[-1].logp, other.turns[-1].logp, atol=1e-5, rtol=0)  # rounding
    assert len({len(trace.turns[-1]) for trace in whole.values()}) > 5  # short and long ones


# --------------------------------------------------------------------------------------------------------- the schedule


@pytest.mark.parametrize("lag", (0, 2))
def test_each_token_is_by_the_weights_of_its_own_step(lag: int, small_model: Path, other_model: Path) -> None:
    """The k-th chunk of a reply drawn for step t is by version max(0, t + k - lag), and so are its recorded log-probs.

    All that is open when the last step comes is written to its end there.
    """
    method, steps, chunk = build_method("grpo", other_model), 7, 7
    settings = replace(LONG, lag=lag, lr=1e-2, chunk=chunk)
    models = build_cast(method, small_model, settings)
    policy, drawn = models["policy"], {}
    (phase,) = method.phases

    def draw(step: Step) -> list[Any]:
        tasks = phase.draw.call(step)
        drawn.update({task.key: step.clock.step for task in tasks})
        return tasks

    method = replace(method, phases=(replace(phase, draw=replace(phase.draw, call=draw)),))
    kept = {0: {name: p.clone() for name, p in policy.module.state_dict().items()}}
    reports = []
    for report in loop_as_set(method, models, settings, steps=steps):
        reports.append(report)
        kept[policy.version] = {name: p.clone() for name, p in policy.module.state_dict().items()}
    mixed = 0
    for (key, _), trace in learned(reports).items():
        said = trace.turns[-1]
        step_of = [min(drawn[key] + i // chunk, steps - 1) for i in range(len(said))]
        assert said.versions is not None and said.versions.tolist() == [max(0, t - lag) for t in step_of]
        mixed += len(said.runs()) > 1
        for version, _count in said.runs():
            policy.module.load_state_dict(kept[version])
            policy.weights_moved()
            (again,) = policy.streams([trace], [trace.by("policy")], {"logp"}, 4096)
            mine = said.versions == version
            torch.testing.assert_close(again["logp"][trace.by("policy")][mine], said.logp[mine], atol=2e-5, rtol=0)
    assert mixed > 20


@pytest.mark.parametrize("lag", (0, 2))
def test_what_was_asked_for_is_learned_from_once_and_in_time(lag: int, small_model: Path, other_model: Path) -> None:
    """At a learning rate that moves: as many replies as tasks x n, and none waits longer than its chunks take."""
    asked: Counter[str] = Counter()
    waited: list[int] = []
    born: dict[str, int] = {}
    method = build_method("grpo", other_model)
    (phase,) = method.phases

    def draw(step: Step) -> list[Any]:
        tasks = phase.draw.call(step)
        asked.update(task.key for task in tasks)
        born.update({task.key: step.clock.step for task in tasks})
        return tasks

    def note(groups: list[Group], step: Step) -> list[Group]:
        waited.extend(step.clock.step - born[group.task.key] for group in groups)
        return groups

    told = replace(
        phase,
        draw=replace(phase.draw, call=draw),
        credit=chain(phase.credit, Part(name="note", call=note)),
    )
    reports, _ = run(replace(method, phases=(told,)), small_model, 9, chunk=5, lag=lag, lr=1e-2)
    found = Counter(key for key, _ in learned(reports))
    assert found == {key: 4 * times for key, times in asked.items()}
    assert max(waited) == math.ceil(24 / 5) - 1 and len(set(waited)) > 2
    assert reports[-1].metrics["unfinished"] == 0 < reports[-2].metrics["unfinished"]


def test_steps_in_which_nothing_ends_are_not_empty(small_model: Path, other_model: Path) -> None:
    """A reply may need more steps than a run has patience for steps with nothing to learn from."""
    reports, _ = run(build_method("grpo", other_model), small_model, 30, chunk=1, max_new_tokens=28, prompts=1)
    first = next(report.clock.step for report in reports if report.metrics["traces"])
    assert first > 20


def test_threads_change_nothing(small_model: Path, other_model: Path) -> None:
    found = []
    for threaded in (False, True):
        settings = replace(LONG, lag=2, chunk=6, lr=1e-2)
        method = chunked(build_method("grpo", other_model))
        models = build_cast(method, small_model, settings)
        pipeline = Pipeline(method, models, settings, threaded=threaded)
        metrics = [report.metrics for report in loop_as_set(method, models, settings, steps=5, pipeline=pipeline)]
        found.append((metrics, [p.detach().clone() for p in models["policy"].module.parameters()]))
    assert found[0][0] == found[1][0]
    assert all(torch.equal(a, b) for a, b in zip(found[0][1], found[1][1], strict=True))


# ---------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize(
    ("name", "lag"),
    [("grpo", 0), ("grpo", 1), ("remax", 2), ("prefix_rft", 0), (f"{CURRICULUM}:second_chances", 1), ("aepo", 0)],
)
def test_stop_anywhere_and_resume(name: str, lag: int, small_model: Path, other_model: Path, tmp_path: Path) -> None:
    """Unfinished replies are part of a checkpoint: the resumed run is the straight one, bit for bit."""
    straight = tmp_path / "straight"
    told = options_of(name, small_model, other_model, straight, lag=lag, chunk=3)
    if name == "aepo":
        with pytest.raises(ValueError, match="cannot write replies in chunks"):
            burnish.train(name, **told)
        return
    burnish.train(name, **told)
    step = 1 + len(name) % 2  # before the queue reaches the last step, which leaves nothing open
    halted = halted_after(step, straight, tmp_path / "halted")
    (waiting,) = (halted / "checkpoints" / f"step-{step:06d}" / "state").glob("unfinished-*.json")
    assert '"groups": []' not in waiting.read_text()
    resume(halted)
    assert not differences(straight, halted)


@pytest.mark.slow
def test_every_method_resumes_in_chunks_or_refuses(
    name: str, small_model: Path, other_model: Path, tmp_path: Path
) -> None:
    straight = tmp_path / "straight"
    told = options_of(name, small_model, other_model, straight, chunk=3, steps=4, eval_tasks=0)
    try:
        burnish.train(name, **told)
    except ValueError as why:
        assert "leave out --chunk" in str(why)
        assert not straight.exists()
        return
    halted = halted_after(2, straight, tmp_path / "halted")
    resume(halted)
    assert not differences(straight, halted)


def test_an_open_group_survives_being_written_down(small_model: Path, other_model: Path) -> None:
    method = chunked(build_method("prefix_rft", other_model))
    settings = replace(LONG, chunk=4)
    models = build_cast(method, small_model, settings)
    next(loop_as_set(method, models, settings, steps=9))
    (waiting,) = memories_of(method.phases[0])
    again = Unfinished(waiting.name)
    again.load_state_dict(waiting.state_dict())
    assert again.state_dict() == waiting.state_dict() and again.replies() == waiting.replies() > 0
    one, other = waiting.groups[0].replies[0], again.groups[0].replies[0]
    assert one.start.key == other.start.key and torch.equal(one.tokens(), other.tokens())
    assert again.groups[0].replies[0].start.turns[0] is again.groups[0].replies[1].start.turns[0]  # one prompt


# --------------------------------------------------------------------------------------------- what is said and refused


def test_what_cannot_wait_is_refused(small_model: Path, other_model: Path, tmp_path: Path) -> None:
    for name, why in (("archer", "cannot write replies in chunks"), ("sft", "samples no replies")):
        with pytest.raises(ValueError, match=rf"^{name} {why}.*leave out --chunk"):
            burnish.train(name, **options_of(name, small_model, other_model, tmp_path / "run", chunk=3))
    with pytest.raises(ValueError, match="'chunk' is 0; it must be at least 1"):
        burnish.train("grpo", **options_of("grpo", small_model, other_model, tmp_path / "run", chunk=0))
    assert not (tmp_path / "run").exists()


class Heard(Observer):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warned(self, said: str) -> None:
        self.warnings.append(said)


def test_a_method_that_never_corrects_is_told_of(small_model: Path, other_model: Path, tmp_path: Path) -> None:
    heard = Heard()
    burnish.train(
        "prefix_rft", observer=heard, **options_of("prefix_rft", small_model, other_model, tmp_path / "run", chunk=3)
    )
    assert "with --chunk 3 it learns from replies of older weights as if they were fresh" in heard.warnings[0]


def test_replies_that_nobody_writes_on_are_counted(small_model: Path, other_model: Path, tmp_path: Path) -> None:
    """A phase that is inactive in the last step leaves unfinished replies: a warning, and a checkpoint with them."""

    def early_only(task: Any, *, n: int = 4, updates: int = 1) -> Method:
        grpo = build_method("grpo", other_model)
        (phase,) = grpo.phases
        return replace(grpo, phases=(replace(phase, times=lambda clock: float(clock.step < 2)),))

    heard = Heard()
    told = options_of("grpo", small_model, other_model, tmp_path / "run", chunk=3, eval_tasks=0)
    del told["reward"]
    burnish.train(early_only, observer=heard, **told)
    (said,) = [warning for warning in heard.warnings if "still being written" in warning]
    held = json.loads((tmp_path / "run" / "checkpoints" / "step-000005" / "state" / "unfinished-main.json").read_text())
    traces = [trace for one in held["groups"] for trace in one["group"]["traces"]]
    assert int(said.split()[0]) == sum("stopped" not in trace["note"] for trace in traces) > 0
