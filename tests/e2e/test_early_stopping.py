"""Early stopping, the best checkpoint, and the names and tags of runs: whole runs on a small random model."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from runs import go, halted_after, refused, same_run, saved, tensors

import burnish
from burnish.cli import main
from burnish.config.options import Options
from burnish.evals.best import Best, Score
from burnish.run.train import Result
from burnish.store.reader import open_store

MEASURED: dict[str, Any] = {"eval_tasks": 2, "eval_every": 1, "steps": 9}  # a random model scores 0 at every step


@pytest.fixture(scope="module")
def patient(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return go("grpo", small_model, tmp_path_factory.mktemp("patient") / "run", patience=2, **MEASURED)


def test_a_run_ends_after_so_many_evaluations_without_a_better_one(patient: Result) -> None:
    """Step 1 is the best (0.0); steps 2 and 3 are no better."""
    assert len(patient.metrics) == 3 and not patient.stopped and patient.model is not None
    assert patient.ended.startswith("held-out accuracy, sampled, was no better for 2 evaluations (--patience 2)")
    assert patient.best == Score("sampled_accuracy", 1, 0.0)
    assert [event["text"] for event in patient.store.events() if event["kind"] == "ended"] == [patient.ended]
    assert patient.store.state() == "finished"


@pytest.mark.parametrize("step", [1, 2])
def test_a_killed_run_ends_where_it_would_have_ended(patient: Result, step: int, tmp_path: Path) -> None:
    """The count of evaluations is in the checkpoint: without it the resumed run would go on beyond step 3."""
    killed = halted_after(step, patient.folder, tmp_path / "run")
    resumed = burnish.resume(killed)
    assert resumed.ended == patient.ended
    same_run(patient.folder, killed)


def test_a_run_that_ended_early_stays_ended_until_its_patience_is_changed(patient: Result, tmp_path: Path) -> None:
    shutil.copytree(patient.folder, tmp_path / "run", symlinks=True)
    assert len(burnish.resume(tmp_path / "run").metrics) == 3
    assert len(burnish.resume(tmp_path / "run", patience=3).metrics) == 4
    assert len(burnish.resume(tmp_path / "run", patience=0, steps=5).metrics) == 5


def test_the_best_checkpoint_stays_and_is_linked(small_model: Path, tmp_path: Path) -> None:
    result = go("grpo", small_model, tmp_path / "run", keep=1, **{**MEASURED, "steps": 3})
    assert saved(result.folder) == ["step-000001", "step-000003"]
    assert os.readlink(result.folder / "best") == "checkpoints/step-000001/policy"
    last, best = tensors(result.folder / "checkpoints" / "step-000003" / "policy"), tensors(result.folder / "best")
    assert tensors(result.folder / "model").items() <= last.items() and last != best
    again = burnish.resume(result.folder, steps=4)
    assert saved(again.folder) == ["step-000001", "step-000004"]


def test_the_product_can_be_the_best_model(small_model: Path, tmp_path: Path) -> None:
    options = {**MEASURED, "steps": 3, "keep": 1, "lr": 1e-2}
    result = go("grpo", small_model, tmp_path / "run", product="best", **options)
    model = tensors(result.folder / "model")
    assert model.items() <= tensors(result.folder / "best").items()
    assert not model.items() <= tensors(result.folder / "checkpoints" / "step-000003").items()


@pytest.mark.parametrize(
    ("method", "name", "flag"), [("sft", "sft/nll", "likelihood"), ("dpo", "accuracy", "preference")]
)
def test_the_score_can_be_that_of_given_replies(
    method: str, name: str, flag: str, small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The task has a verifier, and a random model scores 0; the NLL falls, so the run does not end early."""
    words = ["--task", "sort", "--eval-measure", "loss", "--patience", "2", "--lr", "1e-2", "--prompts", "4", "--quiet"]
    words += ["--eval-tasks", "8", "--eval-every", "1", "--steps", "4", "--device", "cpu", "--model", str(small_model)]
    assert main(["train", method, *words, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    told = {"sft": "8 held-out rows, the likelihood of the replies", "dpo": "8 held-out rows, the order of the pairs"}
    assert told[method] in said and f"--measure {flag}" in said
    with open_store(tmp_path / "run") as store:
        scores = [
            value
            for row in store.metrics()
            for key, value in row.items()
            if key.endswith(f"{name}") and "heldout" in key
        ]
    assert len(scores) >= 3 and (method == "dpo" or scores[-1] < scores[0])


def test_lower_is_better_for_losses_and_a_tie_is_no_improvement() -> None:
    best = Best(Options(patience=2, stop_at=1.0))
    for step, value in enumerate((3.0, 2.0, 2.0), 1):
        best.measured(step, {"heldout/sft/nll": value, "heldout/other": 0.0})
    assert best.best == Score("sft/nll", 2, 2.0) and best.waiting == 1 and not best.ends()
    best.measured(4, {})  # not measured
    assert best.waiting == 1
    again = Best(best.options)
    again.load_state_dict(best.state_dict())
    again.measured(5, {"heldout/sft/nll": 2.5})
    assert again.ends().startswith("held-out sft/nll was no better for 2 evaluations")
    again.measured(6, {"heldout/sft/nll": 0.9})
    assert again.ends() == "held-out sft/nll reached 0.900 (--stop-at 1)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patience": -1}, "'patience' is -1; it must be at least 0"),
        ({"patience": 2, "eval_every": 0, "eval_tasks": 2}, "--patience needs held-out evaluations"),
        ({"stop_at": 0.5}, "--stop-at needs held-out evaluations"),
        ({"product": "first"}, "it must be last or best"),
        ({"product": "best", "keep_best": False, "eval_tasks": 2}, "leave out --no-keep-best"),
        ({"lr_min": 2.0, "lr_schedule": "cosine"}, "it must be between 0 and 1"),
        ({"lr_min": 0.1}, "the schedule is constant"),
        ({"eval_measure": "loss", "eval_tasks": 2}, "for methods that learn from given replies, and grpo samples"),
        ({"lr_warmup": 1.5}, "a number of steps, or a share"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str, small_model: Path, tmp_path: Path) -> None:
    with refused(message, tmp_path / "run"):
        go("grpo", small_model, tmp_path / "run", **options)


def test_runs_have_names_and_tags(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    small = ["--prompts", "2", "--n", "2", "--eval-tasks", "0", "--max-new-tokens", "4", "--steps", "1"]
    for tags in ("small,first", "small"):
        words = ["train", "grpo", "--model", str(small_model), *small, "--run-name", "A run: 1", "--tag", tags]
        assert main(words) == 0
    first, second = sorted(path.name for path in Path("runs").iterdir())
    assert first == "A-run--1" and second.startswith("A-run--1-2")  # the second has the date after its name
    capsys.readouterr()
    assert main(["runs", "--tag", "first"]) == 0
    listed = capsys.readouterr().out
    assert first in listed and second not in listed and "first" in listed
    assert main(["runs", "--tag", "small,first"]) == 0 and second not in capsys.readouterr().out
    assert main(["runs", "--tag", "small"]) == 0 and second in capsys.readouterr().out
    assert main(["runs", "--tag", "other"]) == 0 and "No runs" in capsys.readouterr().out
