"""Sampling ahead of learning (--lag): a fixed schedule, independent of thread timing, that resumes exactly."""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, arguments_for, build_cast, build_method, run_options_for, task_for
from guards import guards
from runs import halted_after

import burnish
from burnish.api.train import resume
from burnish.checkpoint.diff import differences, log_rows
from burnish.core.loop import Report
from burnish.core.method import Method
from burnish.core.parts import Part, chain
from burnish.core.pending_step import PartialStep
from burnish.core.step import Notes, Step
from burnish.core.types import Group, Trace
from burnish.core.types_json import group_from_record, group_to_record
from burnish.methods.table import METHODS
from burnish.models.snapshot import SnapshotModels
from burnish.run import pipeline as pipeline_module
from burnish.run.pipeline import Pipeline, loop_as_set, require_pipelined

pytestmark = guards("run/pipeline.py", "models/snapshot.py", "core/loop.py", "core/pending_step.py", "core/prefetch.py")

CURRICULUM = Path(__file__).parents[2] / "examples" / "my_curriculum.py"
KINDS = ("grpo", "ppo", "prefix_rft", "archer", f"{CURRICULUM}:second_chances", "rto", "nlpo", "nash_ema")
REFUSED = ("aepo", "essa", "eva", "serl", "teams_rl")  # sampling and learning share a memory, or the draw asks a model


def options_of(name: str, model: Path, teacher: Path, out: Path, **more: Any) -> dict[str, Any]:
    trial = METHODS[name].trial if name in METHODS else {}
    options: dict[str, Any] = {"model": str(model), "task": trial.get("task", "sort"), "out": str(out), "device": "cpu"}
    options |= {"steps": 5, "prompts": 2, "max_new_tokens": 8, "eval_tasks": 2, "eval_every": 3, "save_every": 1}
    options |= {"keep": 9, "lr": 1e-3, "lr_schedule": "cosine", "lr_warmup": 1}
    if options["task"] != "guess":
        reward = out.parent / "reward.py"
        reward.write_text(
            "import hashlib\ndef coin(completions):\n    return [float(hashlib.md5(c.encode()).digest()[0] % 2) for c "
            "in completions]\n"
        )
        options["reward"] = f"{reward}:coin"
    own = {**arguments_for(name, teacher), **run_options_for(name)} if name in METHODS else {"n": 4}
    return options | own | more


def reports_of(method: Method, model: Path, lag: int, steps: int = 5, **more: Any) -> tuple[list[Report], list[Any]]:
    """The reports of a run in memory, and the weights that it ends with."""
    settings = replace(SMALL, lag=lag, **more)
    models = build_cast(method, model, settings)
    found = list(loop_as_set(method, models, settings, steps=steps))
    return found, [p.detach().clone() for model in models for p in model.module.parameters()]


# --------------------------------------------------------------------------------------------------------- the schedule


@pytest.mark.parametrize(
    ("name", "lag"), [(name, lag) for name in KINDS for lag in (1, 2) if lag == 2 or name in KINDS[:5]]
)
def test_stop_anywhere_and_resume(name: str, lag: int, small_model: Path, other_model: Path, tmp_path: Path) -> None:
    straight = tmp_path / "straight"
    burnish.train(name, **options_of(name, small_model, other_model, straight, lag=lag))
    rows = log_rows(straight, "metrics")
    assert len(rows) == 5
    step = 1 + (len(name) + lag) % 4  # another place in each case
    halted = halted_after(step, straight, tmp_path / "halted")
    resume(halted)
    assert not differences(straight, halted)


@pytest.mark.slow
def test_every_method_resumes_with_a_lag(name: str, small_model: Path, other_model: Path, tmp_path: Path) -> None:
    straight = tmp_path / "straight"
    told = options_of(name, small_model, other_model, straight, lag=1, steps=3, eval_tasks=0)
    if name in REFUSED:
        with pytest.raises(ValueError, match="leave out --lag"):
            burnish.train(name, **told)
        return
    burnish.train(name, **told)
    halted = halted_after(1, straight, tmp_path / "halted")
    resume(halted)
    assert not differences(straight, halted)


@pytest.mark.parametrize("name", ("grpo", "archer", "rto"))
def test_threads_change_nothing(name: str, small_model: Path, other_model: Path, monkeypatch: Any) -> None:
    """Sampled in a thread, in turn with learning, or in a thread that dawdles: the same numbers, the same weights."""
    found = []
    for threaded, delay in ((False, 0.0), (True, 0.0), (True, 0.05)):
        method = build_method(name, other_model)
        settings = replace(SMALL, lag=2)
        models = build_cast(method, small_model, settings)
        pipeline = Pipeline(method, models, settings, threaded=threaded)
        fill = pipeline._fill
        monkeypatch.setattr(pipeline, "_fill", lambda order, fill=fill, delay=delay: (time.sleep(delay), fill(order)))
        metrics = [report.metrics for report in loop_as_set(method, models, settings, steps=4, pipeline=pipeline)]
        found.append((metrics, [p.detach().clone() for p in models["policy"].module.parameters()]))
    assert found[0][0] == found[1][0] == found[2][0]
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0][1], other[1], strict=True))


@pytest.mark.parametrize("lag", (0, 1, 2, 3))
def test_replies_come_from_the_weights_of_the_schedule(lag: int, small_model: Path, other_model: Path) -> None:
    """Step t is written by version max(0, t - lag), and its recorded log-probs are those of just that version."""
    method = build_method("grpo", other_model)
    settings = replace(SMALL, lag=lag, lr=1e-2)
    models = build_cast(method, small_model, settings)
    policy = models["policy"]
    kept = {0: {name: p.clone() for name, p in policy.module.state_dict().items()}}
    reports = []
    for report in loop_as_set(method, models, settings, steps=6):
        reports.append(report)
        kept[policy.version] = {name: p.clone() for name, p in policy.module.state_dict().items()}
    for report in reports:
        t = report.clock.step
        traces = [trace for group in report.groups["main"] for trace in group.traces]
        assert {version for trace in traces for version, _ in trace.turns[-1].runs()} == {max(0, t - lag)}
        if lag:
            assert report.metrics["staleness"] == min(t, lag)
        policy.module.load_state_dict(kept[max(0, t - lag)])
        policy.weights_moved()
        again = policy.streams(traces, [trace.by("policy") for trace in traces], {"logp"}, 4096)
        for trace, streams in zip(traces, again, strict=True):
            born = trace.turns[-1].logp
            torch.testing.assert_close(streams["logp"][trace.by("policy")], born, atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", ("grpo", "ppo", "prefix_rft", "archer", "nlpo", "dapo"))
def test_lag_0_is_the_synchronous_run(name: str, small_model: Path, other_model: Path) -> None:
    """Even through the pipeline, on a copy of the weights and in a thread: same metrics, same replies, same weights."""
    found = []
    for piped in (False, True):
        method = build_method(name, other_model)
        models = build_cast(method, small_model)
        pipeline = Pipeline(method, models, SMALL) if piped else None
        reports = list(loop_as_set(method, models, SMALL, steps=3, pipeline=pipeline))
        records = [[group_to_record(group) for groups in r.groups.values() for group in groups] for r in reports]
        weights = [p.detach().clone() for model in models for p in model.module.parameters()]
        found.append(([report.metrics for report in reports], records, weights))
    (metrics, replies, weights), other = found
    assert metrics == other[0] and replies == other[1]
    assert all(torch.equal(a, b) for a, b in zip(weights, other[2], strict=True))


def test_a_lag_is_felt_from_the_second_step(small_model: Path, other_model: Path) -> None:
    """The first step is the same at any lag; later ones are not, so that the laws here compare what differs."""
    runs = [reports_of(build_method("grpo", other_model), small_model, lag, lr=1e-2)[0] for lag in (0, 1)]
    first, second = ([{**r.metrics, "staleness": 0} for r in run] for run in runs)
    assert first[0] == second[0]
    assert first[2] != second[2]


def test_a_curriculum_hears_of_a_step_before_the_draw_that_may_know_it(small_model: Path, other_model: Path) -> None:
    """With a lag of K, the draw of step t comes after `saw` of step t - 1 - K, and before `saw` of step t - K."""
    for lag in (0, 1, 2):
        method = build_method("grpo", other_model)
        heard: list[tuple[str, int]] = []
        (phase,) = method.phases
        call = phase.draw.call
        draw = replace(
            phase.draw,
            call=lambda step, heard=heard, call=call: (heard.append(("draw", step.clock.step)), call(step))[1],
            saw=lambda groups, step, heard=heard: heard.append(("saw", step.clock.step)),
        )
        reports_of(replace(method, phases=(replace(phase, draw=draw),)), small_model, lag)
        for t in range(5):
            seen = {step for what, step in heard[: heard.index(("draw", t))] if what == "saw"}
            assert seen == set(range(max(0, t - lag)))


def test_no_reply_is_left_out_for_being_long(small_model: Path, other_model: Path) -> None:
    """With lag 2, every sampled reply is learned from exactly once, whatever its length."""
    asked: Counter[tuple[Any, ...]] = Counter()
    learned: Counter[tuple[Any, ...]] = Counter()

    def noting(where: Counter[tuple[Any, ...]]) -> Part:
        def call(groups: list[Group], step: Step) -> list[Group]:
            where.update((step.clock.step, g.task.key, t.index, len(t.turns[-1])) for g in groups for t in g.traces)
            return groups

        return Part(name="noting", call=call)

    method = build_method("grpo", other_model)
    (phase,) = method.phases
    phase = replace(phase, score=chain(noting(asked), phase.score), credit=chain(phase.credit, noting(learned)))
    reports_of(replace(method, phases=(phase,)), small_model, 2, steps=6, max_new_tokens=40)
    assert asked == learned
    assert len(asked) == 6 * SMALL.prompts * 4
    assert len({length for *_, length in asked}) > 5  # short and long ones


# ---------------------------------------------------------------------------------------------------- what can go wrong


def failing(method: Method, at_step: int, error: BaseException) -> Method:
    (phase,) = method.phases

    def call(groups: list[Group], step: Step) -> list[Group]:
        if step.clock.step == at_step:
            raise error
        return groups

    return replace(method, phases=(replace(phase, score=chain(Part(name="failing", call=call), phase.score)),))


def test_an_error_while_sampling_is_raised_with_its_own_traceback(small_model: Path, other_model: Path) -> None:
    method = failing(build_method("grpo", other_model), 2, KeyError("a mistake in a part"))
    done = []
    with pytest.raises(KeyError, match="a mistake in a part") as caught:
        done += [report.clock.step for report in reports_of(method, small_model, 1)[0]]
    assert "in call" in "".join(traceback.format_exception(caught.value))  # the part's own line
    assert not [t for t in threading.enumerate() if t.name == "burnish-sampling" and t.is_alive()]


def test_a_reward_that_is_no_number_refuses_its_own_step(small_model: Path, other_model: Path) -> None:
    """As without a lag: the step that the replies belong to is refused, the others learn."""
    found = {}
    for lag in (0, 1):
        method = build_method("grpo", other_model)
        (phase,) = method.phases

        def spoil(groups: list[Group], step: Step) -> list[Group]:
            if step.clock.step == 2:
                groups[0].traces[0].scores["reward"] = float("nan")
            return groups

        phase = replace(phase, score=chain(phase.score, Part(name="spoil", call=spoil)))
        reports, _ = reports_of(replace(method, phases=(phase,)), small_model, lag)
        found[lag] = [[refusal.why for refusal in report.refusals] for report in reports]
    assert found[0][2] and [bool(whys) for whys in found[0]] == [False, False, True, False, False]
    assert [bool(whys) for whys in found[1]] == [bool(whys) for whys in found[0]]


def test_a_refusal_that_was_sampled_ahead_survives_a_checkpoint() -> None:
    ahead = PartialStep(3, "main", trail=[("verify in score", 2)])
    ahead.notes.add("reward", 0.1)
    ahead.notes.count("refused", 1)
    again = PartialStep.from_record(ahead.to_record())
    assert again == replace(ahead, notes=again.notes, refusals=again.refusals)
    assert again.notes.values() == ahead.notes.values()


def test_a_long_wait_says_what_it_waits_for(small_model: Path, other_model: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(pipeline_module, "SAY_EVERY", 0.05)
    method = build_method("grpo", other_model)
    settings = replace(SMALL, lag=1)
    models = build_cast(method, small_model, settings)
    pipeline = Pipeline(method, models, settings)
    said: list[str] = []
    pipeline.say = said.append
    fill = pipeline._fill
    monkeypatch.setattr(pipeline, "_fill", lambda order: (time.sleep(0.3), fill(order)))
    next(loop_as_set(method, models, settings, steps=2, pipeline=pipeline))
    assert said and "waiting for the replies of step 1 to be sampled and scored" in said[0]


def test_a_memory_that_both_sides_need_is_refused(other_model: Path, small_model: Path, tmp_path: Path) -> None:
    require_pipelined(build_method("aepo", other_model), 0, 5)
    with pytest.raises(ValueError, match=r"state 'entropy' is changed by learning .* leave out --lag"):
        burnish.train("aepo", **options_of("aepo", small_model, other_model, tmp_path / "run", lag=1))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="'lag' is -1"):
        burnish.train("grpo", **options_of("grpo", small_model, other_model, tmp_path / "run", lag=-1))


def test_a_part_that_reads_an_undeclared_model_gets_an_error(small_model: Path, other_model: Path) -> None:
    """The critic is copied only for parts that declare that they read it; other parts get an error."""
    method = build_method("ppo", other_model)
    (phase,) = method.phases

    def peek(groups: list[Group], step: Step) -> list[Group]:
        step.models["critic"].streams([], [], {"value"}, 64)
        return groups

    method = replace(method, phases=(replace(phase, score=chain(phase.score, Part(name="peek", call=peek))),))
    with pytest.raises(AttributeError, match="add 'model:critic.CAPABILITY' to what the part reads"):
        reports_of(method, small_model, 1)


def test_the_sampling_side_shares_weights_that_rest_and_nothing_else(small_model: Path, other_model: Path) -> None:
    """An engine keeps notes on the modules it runs, so no module is shared; a teacher's weights are not held twice."""
    method = build_method("gkd", other_model)
    models = build_cast(method, small_model)
    behind = SnapshotModels(models, {"model:policy.generate", "model:teacher.logits"})
    other = behind.cast_of(behind.take(), Notes())
    for name, shared in (("policy", False), ("teacher", True)):
        ours, theirs = models[name].module, other[name].module
        assert not {id(m) for m in ours.modules()} & {id(m) for m in theirs.modules()}
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert (a.data_ptr() == b.data_ptr()) == shared and torch.equal(a, b)
    weights = behind.take()
    assert behind.take() is weights  # nothing was published: no second copy
    with torch.no_grad():
        next(models["policy"].module.parameters()).add_(1.0)
    models["policy"].version += 1
    assert behind.take() is not weights
    assert not torch.equal(next(models["policy"].module.parameters()), next(other["policy"].module.parameters()))


def test_turns_that_traces_share_are_shared_again() -> None:
    """A tree keeps its branches through a checkpoint: each token of the trunk is still claimed once."""
    task = task_for("grpo").task("train", 0)
    trunk = burnish.core.types.Turn(torch.tensor([1, 2]), "task")
    group = Group(
        task, [Trace((trunk, burnish.core.types.Turn(torch.tensor([3 + i]), "policy", torch.zeros(1)))) for i in (0, 1)]
    )
    again = group_from_record(group_to_record(group))
    assert again.traces[0].turns[0] is again.traces[1].turns[0]
    assert again.traces[0].turns[1] is not again.traces[1].turns[1]
