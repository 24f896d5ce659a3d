"""Out of memory: the run lowers its micro-batches, says so, and goes on with the same gradient."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, build_method, credited, doubled
from guards import guards

sys.path.append(str(Path(__file__).parents[1] / "e2e"))
from runs import go, same_run

import burnish
from burnish.checkpoint.diff import log_rows
from burnish.core.loop import loop
from burnish.core.step import Notes
from burnish.learn.learn import accumulate, measure, plan_of
from burnish.methods.table import METHODS
from burnish.models.build import Models
from burnish.models.model import Model
from burnish.models.oom_backoff import TokenRoom
from burnish.run.train import Observer
from burnish.tasks.data import Dataset

pytestmark = guards(
    "models/oom_backoff.py", "models/model.py", "forward", "learn/passes.py", "learn/batch.py", "learn/rollback.py"
)

ROWS = [{"prompt": f"{n}?", "chosen": "y" * (3 + n % 9), "rejected": "n" * (2 + n % 5)} for n in range(60)]
COMPUTES = Model.outputs


def memory_of(tokens: int, monkeypatch: pytest.MonkeyPatch, backward: bool = False) -> list[int]:
    """From now on a pass of more than `tokens` tokens is out of memory; the tokens of every pass."""
    seen: list[int] = []

    def outputs(self: Model, rows: Any, *args: Any, **how: Any) -> dict[str, torch.Tensor]:
        seen.append(sum(len(row) for row in rows))

        def fail(*_: Any) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

        late = backward and torch.is_grad_enabled()
        if seen[-1] > tokens and not late:
            fail()
        found = COMPUTES(self, rows, *args, **how)
        if seen[-1] > tokens and late:
            for p in self.optimiser.named.values():  # gradients of some parameters are there already
                if p.grad is None:
                    p.grad = torch.ones_like(p)
            next(iter(found.values())).register_hook(fail)
        return found

    monkeypatch.setattr(Model, "outputs", outputs)
    return seen


def gradient_of(run: Callable[[], object], models: Models) -> dict[str, torch.Tensor]:
    models["policy"].optimiser.zero()
    run()
    return {name: p.grad.clone() for name, p in models["policy"].optimiser.named.items() if p.grad is not None}


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name", ["sft", "grpo", "dpo"])
def test_the_gradient_and_the_metrics_are_the_same(
    name: str, backward: bool, small_model: Path, other_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = build_method(name, other_model)
    models = doubled(build_cast(method, small_model))
    ((phase, groups, step),) = credited(method, models)
    plan, noted = plan_of(phase), []

    def learn() -> None:
        step.notes = Notes()
        accumulate(groups, plan, step)
        noted.append(step.notes.values())

    whole = gradient_of(learn, models)
    rows = [len(trace) for group in groups for trace in group.traces]
    passes = memory_of(max(rows) + 5, monkeypatch, backward)
    pieces = gradient_of(learn, models)
    assert models.token_room.limit is not None and models.token_room.limit < SMALL.token_budget
    assert passes[0] > max(rows) + 5 >= passes[-1]
    for key, grad in whole.items():
        torch.testing.assert_close(pieces[key], grad, rtol=1e-9, atol=1e-12)
    assert noted[1] == pytest.approx(noted[0], rel=1e-9, abs=1e-12)
    assert len(models.token_room.warnings) == len(set(models.token_room.warnings)) >= 1
    assert "with the same gradient" in models.token_room.warnings[0]
    count = len(passes)
    assert gradient_of(learn, models).keys() == whole.keys() and max(passes[count:]) <= max(rows) + 5  # from the start


def test_streams_and_measures_are_the_same(
    small_model: Path, other_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = build_method("dpo", other_model)
    models = doubled(build_cast(method, small_model))
    ((phase, groups, step),) = credited(method, models)
    traces = [trace for group in groups for trace in group.traces]
    masks = [trace.by("demo") for trace in traces]

    def both() -> tuple[list[dict[str, torch.Tensor]], float]:
        return models["ref"].streams(traces, masks, {"logp"}, 4096), measure(groups, plan_of(phase), step)

    streams, total = both()
    memory_of(max(map(len, traces)) + 3, monkeypatch)
    again, total_again = both()
    assert total_again == pytest.approx(total, rel=1e-9)
    for one, other in zip(streams, again, strict=True):
        torch.testing.assert_close(one["logp"], other["logp"], equal_nan=True)
    assert models.token_room.limit is not None


def test_a_single_row_that_does_not_fit_is_one_sentence(
    small_model: Path, other_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = build_method("sft", other_model)
    models = build_cast(method, small_model)
    memory_of(4, monkeypatch)
    with pytest.raises(
        ValueError, match=r"^the GPU is out of memory with a single row of \d+ tokens; use --checkpoint"
    ):
        list(loop(method, models, SMALL, steps=1))


def test_other_errors_are_not_taken_for_it() -> None:
    room = TokenRoom(100)

    def attempt() -> None:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        room.fitting(attempt, lambda: (8, 2), lambda: None)
    assert room.limit is None and room.within(50) == 50
    failures = [
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        MemoryError(),
    ]

    def later() -> int:
        if failures:
            raise failures.pop()
        return 7

    assert room.fitting(later, lambda: (80, 4), lambda: None) == 7 and room.limit == 40
    assert room.warnings[0].startswith("the machine ran out of memory with 80 tokens at once; micro-batches now have")


def test_the_limit_is_that_of_one_token_budget() -> None:
    room, same, other = TokenRoom(100), TokenRoom(100), TokenRoom(200)
    room.lower(80, 4, "the GPU")
    for one in (same, other):
        one.load_state_dict(room.state_dict())
    assert (same.limit, other.limit) == (40, None)


class Hearing(Observer):
    def __init__(self) -> None:
        self.said: list[str] = []

    def warned(self, said: str) -> None:
        self.said.append(said)


def test_a_run_goes_on_and_a_resumed_one_knows_the_limit(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, heard = memory_of(120, monkeypatch), Hearing()
    straight, halted = tmp_path / "straight", tmp_path / "halted"
    go("sft", small_model, straight, observer=heard, steps=4, prompts=8, task="add", save_every=2, eval_tasks=0)
    assert max(seen[-4:]) <= 120 < max(seen)
    (said,) = heard.said
    assert re.match(r"the GPU ran out of memory with \d+ tokens at once; micro-batches now have up to \d+ tokens", said)
    assert [event["kind"] for event in log_rows(straight, "events")] == ["memory"]
    shutil.copytree(straight, halted)
    shutil.rmtree(halted / "model")
    shutil.rmtree(halted / "checkpoints" / "step-000004")
    seen.clear()
    burnish.resume(halted)
    assert max(seen) <= 120  # it does not run out of memory again
    same_run(straight, halted)


def test_a_dataset_run_lowers_the_passes_of_its_reference_too(
    small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = METHODS["dpo"].build(Dataset(ROWS))
    settings = replace(SMALL, prompts=12)
    models = build_cast(method, small_model, settings)
    seen = memory_of(150, monkeypatch)
    reports = list(loop(method, models, settings, steps=2))
    assert len(reports) == 2 and models.token_room.limit is not None and seen[-1] <= 150
