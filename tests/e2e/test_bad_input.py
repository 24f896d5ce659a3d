"""Invalid input gives a one-sentence error, and no file is written or lost."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs import COIN, contents, function, go, refused, rows, same_run, saved
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

import burnish
from burnish.checkpoint import checkpoint
from burnish.cli import main
from burnish.core.loop import Report
from burnish.core.types import Task, Verdict
from burnish.run.train import Observer
from burnish.store.reader import open_store

# ------------------------------------------------------------------------------------------------------------- models


def test_a_model_directory_that_does_not_exist(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with refused(r"no model '.*nowhere': it is neither a known name nor a local directory", out):
        go("sft", tmp_path / "nowhere", out)


def test_a_misspelt_model_is_answered_with_its_neighbour(tmp_path: Path) -> None:
    with refused(r"no model 'tinny'.*did you mean tiny", tmp_path / "run"):
        go("sft", "tinny", tmp_path / "run")


def test_pickled_weights_are_refused(small_model: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "run"
    shutil.copytree(small_model, model)
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    with refused(r"has only pickled weights \(pytorch_model.bin\), and burnish loads safetensors only; convert", out):
        go("sft", model, out)


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda m: _shorten(m / "model.safetensors"), r"the model in .* cannot be loaded"),
        (lambda m: (m / "config.json").write_text("{"), r"the model in .* cannot be loaded \(.*config.json"),
        (lambda m: (m / "config.json").write_text('{"model_type": "nosuch"}'), r"cannot be loaded \(.*`nosuch`"),
        (lambda m: [file.unlink() for file in m.glob("token*")], r"there is no tokenizer in .*save_pretrained"),
        (lambda m: _drop_tensor(m / "model.safetensors"), r"are not whole: model\.norm\.weight is missing"),
    ],
    ids=["truncated weights", "malformed config", "unknown architecture", "no tokenizer", "a tensor is missing"],
)
def test_a_model_directory_that_is_not_whole(spoil: Callable, match: str, small_model: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "run"
    shutil.copytree(small_model, model)
    spoil(model)
    with refused(match, out):
        go("sft", model, out)


def test_a_language_model_is_not_a_reward_model(small_model: Path, other_model: Path, tmp_path: Path) -> None:
    with refused(r"the model for 'rm' in .* gives no scores: it has no scoring head; pass", tmp_path / "run"):
        go("grpo", small_model, tmp_path / "run", reward_model=str(other_model))


# --------------------------------------------------------------------------------------------------------------- data


@pytest.mark.parametrize(
    ("method", "row", "match"),
    [
        (
            "sft",
            {"prompt": "a", "ground_truth": "b"},
            r"sft: task .* gives no 'demo'.*\(it gives answer\).*column completion",
        ),
        ("dpo", {"prompt": "a", "chosen": "b"}, r"dpo: task .* gives no 'rejected'.*a column rejected"),
        (
            "grpo",
            {"prompt": "a"},
            r"grpo: dataset .* does not have an 'answer' in every row.*--reward file.py:function",
        ),
        ("sft", {"body": "a"}, r"line 1: needs column 'prompt' .*; found columns body; name one with --columns prompt"),
    ],
)
def test_a_dataset_without_a_column(method: str, row: dict, match: str, small_model: Path, tmp_path: Path) -> None:
    with refused(match, tmp_path / "run"):
        go(method, small_model, tmp_path / "run", task=rows(tmp_path / "d.jsonl", row, {**row, "prompt": "c"}))


def test_an_answer_that_only_some_rows_have(small_model: Path, tmp_path: Path) -> None:
    data = rows(tmp_path / "d.jsonl", *({"prompt": f"{i}", "answer": "1"} for i in range(20)), {"prompt": "x"})
    with refused(r"does not have an 'answer' in every row", tmp_path / "run"):
        go("grpo", small_model, tmp_path / "run", task=data)


def test_an_empty_dataset(small_model: Path, tmp_path: Path) -> None:
    with refused(r"dataset .* is empty; it needs at least one row", tmp_path / "run"):
        go("sft", small_model, tmp_path / "run", task=rows(tmp_path / "d.jsonl"))


def test_a_dataset_with_nothing_to_hold_out(small_model: Path, tmp_path: Path) -> None:
    data, out = rows(tmp_path / "d.jsonl", {"prompt": "a", "completion": "b"}), tmp_path / "run"
    with refused(
        r"has no held-out rows, by which --patience and --product best go; give it more rows, or leave out", out
    ):
        go("sft", small_model, out, task=data, eval_tasks=4, eval_every=1, patience=1)
    found = go("sft", small_model, out, task=data, eval_tasks=4)
    assert (found.model, found.before, found.after) == (out / "model", None, None)


def test_malformed_jsonl_is_named_by_its_line(small_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "d.jsonl"
    file.write_text('{"prompt": "a", "completion": "b"}\n\n{"prompt": "a", \n')
    with refused(r"d\.jsonl, line 3: not valid JSON .*; fix that line", tmp_path / "run"):
        go("sft", small_model, tmp_path / "run", task=str(file))


def test_a_dataset_that_is_not_there(small_model: Path, tmp_path: Path) -> None:
    with refused(r"no file or folder '.*gone\.jsonl'; check the path", tmp_path / "run"):
        go("sft", small_model, tmp_path / "run", task=str(tmp_path / "gone.jsonl"))


@pytest.mark.parametrize("method", ["grpo", "sft"])
def test_rows_that_are_all_longer_than_the_context(method: str, small_model: Path, tmp_path: Path) -> None:
    long = {"prompt": "why? " * 60, "completion": "so", "answer": "so"}
    with refused(
        r"all 1 rows of .* are longer than 256 tokens \(the longest, .*, line 1, has 3\d\d\)", tmp_path / "run"
    ):
        go(method, small_model, tmp_path / "run", task=rows(tmp_path / "d.jsonl", long))


# ------------------------------------------------------------------------------------------------ rewards and verifiers


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("return [1.0]", r"reward f returned 1 numbers for 4 completions; return one for each"),
        ("return ['good'] * len(completions)", r"reward f returned 'good' at index 0"),
        ("return 'good'", r"reward f returned str; return a list"),
        ("return 1 / 0", r"reward f raised ZeroDivisionError: division by zero at r.py, line 2, for the row .*; fix"),
    ],
)
@pytest.mark.parametrize("eval_tasks", [0, 4])
def test_a_reward_function_that_is_wrong(
    body: str, match: str, eval_tasks: int, small_model: Path, tmp_path: Path
) -> None:
    """Whether it is met in the evaluation before the run or in the first step."""
    reward = function(tmp_path / "r.py", f"def f(completions):\n    {body}\n", "f")
    with refused(match, tmp_path / "run", leaves=not eval_tasks):
        go("grpo", small_model, tmp_path / "run", reward=reward, eval_tasks=eval_tasks)


def test_a_reward_function_that_is_not_there(small_model: Path, tmp_path: Path) -> None:
    with refused(r"r\.py has no function 'g'; it has f", tmp_path / "run"):
        reward = function(tmp_path / "r.py", "def f(completions):\n    return []\n", "g")
        go("grpo", small_model, tmp_path / "run", reward=reward)


class Fragile:
    """Tasks whose verifier fails on every other reply, in the way that reading a number from text fails."""

    name, summary, gives = "fragile", "a verifier that raises", frozenset({"answer"})

    def size(self, split: str) -> int | None:
        return None

    def task(self, split: str, index: int) -> Task:
        return Task("question", f"say {index}", {"answer": "1"}, f"{split}/{index}")

    def verify(self, task: Task, reply: str) -> Verdict:
        if sum(reply.encode()) % 2:
            int("no number")
        return Verdict(1.0, True)


def test_a_verifier_that_raises_costs_its_trace_not_the_run(small_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    go("grpo", small_model, out, task=Fragile(), n=4, steps=3, eval_tasks=4)
    with open_store(out) as store:
        traces = store.traces(limit=None)
    failed = [trace for trace in traces if "why" in trace["note"]]
    assert 0 < len(failed) < len(traces)
    assert all(trace["scores"] == {"reward": 0.0, "correct": 0.0} for trace in failed)
    assert all("the verifier of 'fragile' raised ValueError: invalid literal" in t["note"]["why"] for t in failed)


def test_a_task_of_ones_own_is_needed_again_to_resume(small_model: Path, tmp_path: Path) -> None:
    straight, halted = tmp_path / "straight", tmp_path / "halted"
    go("grpo", small_model, straight, task=Fragile())
    assert yaml.safe_load((straight / "config.yaml").read_text())["task"] == "python:fragile"
    _halt(straight, halted, "step-000002")
    before = contents(halted)
    with pytest.raises(ValueError, match=r"the task 'fragile' was passed as a Python object.*resume\(folder, task="):
        burnish.resume(halted)
    assert contents(halted) == before
    burnish.resume(halted, task=Fragile())
    same_run(straight, halted)


# ------------------------------------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("method", "given", "match"),
    [
        ("grppo", {}, r"there is no method 'grppo'; did you mean grpo"),
        ("grpo", {"task": "srot"}, r"there is no task 'srot': did you mean sort"),
        ("grpo", {"task": "sort:99"}, r"has no level 99"),
        ("grpo", {"max_new_token": 3}, r"grpo has no option 'max_new_token'; did you mean 'max_new_tokens'"),
        ("grpo", {"temprature": 3}, r"grpo has no option 'temprature'; did you mean 'temperature'"),
        ("grpo", {"steps": "many"}, r"option 'steps' takes a whole number, not 'many'"),
        ("grpo", {"steps": 2.5}, r"option 'steps' takes a whole number, not 2\.5"),
        ("grpo", {"packed": "perhaps"}, r"option 'packed' takes true or false, not 'perhaps'"),
        ("grpo", {"steps": 0}, r"option 'steps' is 0; it must be at least 1"),
        ("grpo", {"seed": None}, r"option 'seed' cannot be empty; it takes a whole number"),
        ("grpo", {"lr_schedule": "cosin"}, r"cosin.*cosine"),
        ("grpo", {"merge": True}, r"--merge adds LoRA adapters into the weights, but there is no --lora"),
        ("grpo", {"lora": 0}, r"option 'lora' is 0; it must be at least 1"),
        ("gkd", {}, r"gkd needs --teacher; for example"),
    ],
)
def test_options_that_cannot_be(method: str, given: dict[str, Any], match: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with refused(match, out):
        burnish.train(method, **{"out": str(out), "eval_tasks": 0, "device": "cpu", **given})


def test_the_command_line_says_the_same_and_returns_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "grpo", "--task", "srot"]) == 2
    assert main(["train", "grpo", "--stesp", "3"]) == 2
    said = capsys.readouterr().err
    assert "there is no task 'srot': did you mean sort?" in said
    assert "'stesp'" in said and "steps" in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_a_run_folder_that_exists_is_not_touched(small_model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    go("sft", small_model, out)
    before = contents(out)
    with pytest.raises(ValueError, match=r"the run folder .* exists already; resume it with --resume .*, or choose"):
        go("sft", small_model, out, lr=1e-2)
    assert contents(out) == before


def test_a_folder_with_something_else_in_it_is_not_touched(small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"exists already"):
        go("sft", small_model, tmp_path)
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_what_is_not_a_run_folder_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is not a run folder: it has no config.yaml"):
        burnish.resume(tmp_path)


# ------------------------------------------------------------------------------------------------------- a full disk


class AfterSteps(Observer):
    """Does something once, after a number of steps."""

    def __init__(self, steps: int, act: Callable[[], None]) -> None:
        self.steps, self.act = steps, act

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        if report.clock.step + 1 == self.steps:
            self.act()


@contextmanager
def _failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> Iterator[Callable[[], None]]:
    """Gives a switch: from then on, the optimiser's file cannot be written, though the weights before it could."""

    def fail(tensors: dict, path: Path) -> None:
        path.write_bytes(b"half")
        raise error

    with monkeypatch.context() as patched:
        yield lambda: patched.setattr(checkpoint, "save_file", fail)


@contextmanager
def _limited() -> Iterator[Callable[[], None]]:
    """Gives a switch: from then on, the operating system lets no file grow beyond 30 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _once_saved(folder: Path, act: Callable[[], None]) -> None:
    """Act when the first checkpoint, which is written while training continues, is complete."""
    deadline = time.monotonic() + 30
    while not (folder / "checkpoints" / "step-000001").is_dir():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    act()


@pytest.mark.parametrize("how", ["OSError", "SafetensorError", "limit"])
def test_a_full_disk_while_saving_loses_one_checkpoint_and_nothing_else(
    how: str, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = {
        "OSError": OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        "SafetensorError": SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
    }
    straight, halted = tmp_path / "straight", tmp_path / "halted"
    go("sft", small_model, straight, steps=3)
    full = _limited() if how == "limit" else _failing(monkeypatch, errors[how])
    message = r"could not save .*step-000002: .*No space left on device.*nothing saved earlier was touched"
    if how == "limit":  # the run store is the first to meet it
        message = r"could not write .*store.sqlite: .*; free some disk space and use --resume"
    with full as switch, pytest.raises(ValueError, match=message):
        go("sft", small_model, halted, steps=3, observer=AfterSteps(2, lambda: _once_saved(halted, switch)))
    assert saved(halted) == ["step-000001"]
    assert not checkpoint.damage(halted / "checkpoints" / "step-000001")
    burnish.resume(halted)
    same_run(straight, halted)


# -------------------------------------------------------------------------------------------------------------- Ctrl-C

INTERRUPTED = (
    COIN
    + """
import os, pathlib, signal

def interrupted(completions):
    flag = pathlib.Path(__file__).with_name("now")
    if flag.exists():
        flag_text = flag.read_text()
        flag.unlink()
        name, run = flag_text.split()  # the function has a process of its own
        os.kill(int(run), getattr(signal, name))
    return coin(completions)
"""
)


@pytest.mark.parametrize("which", ["SIGINT", "SIGTERM"])
def test_ctrl_c_finishes_the_step_saves_and_resumes_exactly(which: str, small_model: Path, tmp_path: Path) -> None:
    """The signal comes in the middle of the second step."""
    reward = function(tmp_path / "r.py", INTERRUPTED, "interrupted")
    straight, halted = tmp_path / "straight", tmp_path / "halted"
    same: dict[str, Any] = {"reward": reward, "steps": 4, "save_every": 10, "lr_schedule": "cosine"}
    go("grpo", small_model, straight, **same)
    heard: list[str] = []

    class Watching(AfterSteps):
        def stopping(self) -> None:
            heard.append("stopping")

    def write(file: Path, text: str) -> None:
        file.write_text(text)

    handler = signal.getsignal(signal.SIGINT)
    result = go(
        "grpo",
        small_model,
        halted,
        **same,
        observer=Watching(1, lambda: write(tmp_path / "now", f"{which} {os.getpid()}")),
    )
    assert signal.getsignal(signal.SIGINT) is handler
    assert result.stopped and result.model is None and heard == ["stopping"]
    assert saved(halted) == ["step-000002"] and len(result.metrics) == 2
    assert not burnish.resume(halted).stopped
    same_run(straight, halted)


def test_a_second_ctrl_c_stops_at_once(small_model: Path, tmp_path: Path) -> None:
    def twice() -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        go("sft", small_model, tmp_path / "run", steps=3, observer=AfterSteps(2, twice))
    assert saved(tmp_path / "run") == ["step-000001"]
    assert not burnish.resume(tmp_path / "run").stopped


# ------------------------------------------------------------------------------------------------- damaged checkpoints


def _shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def _drop_tensor(file: Path) -> None:
    save_file({k: v for k, v in load_file(file).items() if k != "model.norm.weight"}, file, {"format": "pt"})


def _halt(straight: Path, halted: Path, last: str) -> None:
    """A copy of a finished run that looks as if it had stopped before its last checkpoint."""
    shutil.copytree(straight, halted)
    shutil.rmtree(halted / "checkpoints" / last)
    shutil.rmtree(halted / "model")


@pytest.fixture(scope="module")
def finished(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three steps with all its checkpoints."""
    out = tmp_path_factory.mktemp("finished") / "run"
    go("sft", small_model, out, steps=3)
    return out


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit": lambda last: _flip(last / "policy" / "model.safetensors"),
    "a truncated file": lambda last: _shorten(last / "policy" / "optimiser.safetensors"),
    "a missing file": lambda last: (last / "step.json").unlink(),
    "a truncated manifest": lambda last: _shorten(last / "manifest.json"),
    "no manifest": lambda last: (last / "manifest.json").unlink(),
    "an emptied manifest": lambda last: (last / "manifest.json").write_text("[]"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over(kind: str, finished: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(finished, again)
    shutil.rmtree(again / "model")
    DAMAGE[kind](again / "checkpoints" / "step-000003")
    latest, passed = checkpoint.newest(again)
    assert latest is not None and latest.name == "step-000002"
    assert len(passed) == 1 and passed[0].startswith("step-000003 (")
    burnish.resume(again)
    same_run(finished, again)
    assert not checkpoint.damage(again / "checkpoints" / "step-000003")


def test_all_checkpoints_damaged_is_one_sentence(finished: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(finished, again)
    for path in (again / "checkpoints").iterdir():
        _flip(path / "policy" / "model.safetensors")
    before = contents(again)
    match = r"no usable checkpoint in .*; damaged: step-000003 \(policy/model.safetensors is changed\), .*; start a new"
    with pytest.raises(ValueError, match=match):
        burnish.resume(again)
    assert contents(again) == before


def test_keeping_few_never_removes_the_fresh_for_the_damaged(finished: Path, tmp_path: Path) -> None:
    """A damaged step 3 is newer by name than the step 2 that is written anew; it is not what is kept."""
    again = tmp_path / "again"
    shutil.copytree(finished, again)
    for name in ("step-000002", "step-000003"):
        _flip(again / "checkpoints" / name / "policy" / "model.safetensors")

    class Watching(Observer):
        def saved(self, path: Path) -> None:
            assert path.is_dir() and not checkpoint.damage(path)

    burnish.resume(again, keep=1, observer=Watching())
    assert saved(again) == ["step-000003"]
