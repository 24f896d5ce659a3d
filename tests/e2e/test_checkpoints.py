"""Checkpoints: atomic writes, detection of damage, saving while training, --keep, and all layouts of models."""

from __future__ import annotations

import importlib.util
import shutil
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from guards import guards
from runs import COIN, contents, function, go, halted_after, same_run, saved, tensors

import burnish
from burnish.checkpoint import async_save, checkpoint
from burnish.checkpoint.checkpoint import Contents, damage, newest
from burnish.checkpoint.diff import differences, log_rows
from burnish.checkpoint.pinned_buffers import HostBuffers
from burnish.cli import main
from burnish.core.loop import Report
from burnish.run.folder import Folder
from burnish.run.train import Observer, Run
from burnish.store.recorder import cut
from burnish.util import files as disk

pytestmark = guards("checkpoint", "core/loop.py")

SCRIPTS = Path(__file__).parent.parent.parent / "scripts"


def script(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


class Hearing(Observer):
    """Keeps the run, the saved checkpoints and the warnings."""

    def __init__(self) -> None:
        self.saves: list[str] = []
        self.said: list[str] = []

    def started(self, run: Run) -> None:
        self.run = run

    def saved(self, path: Path) -> None:
        self.saves.append(path.name)

    def warned(self, said: str) -> None:
        self.said.append(said)


@pytest.fixture(scope="module")
def finished(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three steps with all its checkpoints."""
    out = tmp_path_factory.mktemp("finished") / "run"
    go("sft", small_model, out, steps=3)
    return out


@pytest.fixture
def again(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "again")
    return tmp_path / "again"


# -------------------------------------------------------------------------------------------------------------- damage


def test_sixty_damages_are_sixty_noticed(small_model: Path) -> None:
    """The thousand of scripts/damage_checkpoints.py, in small; two of them are resumed for real."""
    found = script("damage_checkpoints").go(60, seed=1, resume_every=30, model=str(small_model), say=lambda text: None)
    assert found["damages"] == found["detected"] == 60
    assert found["resumed"] == found["resumed_the_same"] == 2
    assert len(found["by_file"]) > 10 and {"bit", "cut"} < found["by_kind"].keys()


def test_every_bit_of_a_manifest_counts(again: Path) -> None:
    """The manifest guards the files; nothing guards it but its own text, byte for byte."""
    last = again / "checkpoints" / "step-000003"
    whole = (last / "manifest.json").read_bytes()
    for place in range(0, len(whole), 29):
        for bit in range(8):
            spoilt = bytearray(whole)
            spoilt[place] ^= 1 << bit
            (last / "manifest.json").write_bytes(bytes(spoilt))
            assert damage(last), f"bit {bit} of byte {place}"
    (last / "manifest.json").write_bytes(whole)
    assert not damage(last)


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(finished: Path, again: Path) -> None:
    shutil.rmtree(again / "model")
    (again / "checkpoints" / "step-000003" / "step.json").unlink()
    heard = Hearing()
    burnish.resume(again, observer=heard)
    said = "step-000003 (step.json is missing): skipped, resuming from step-000002"
    assert heard.said == [said]
    assert [(event["kind"], event["said"]) for event in log_rows(again, "events")] == [("damaged", said)]
    assert not differences(finished, again)


def test_a_stranger_among_the_files_is_named(again: Path) -> None:
    (again / "checkpoints" / "step-000003" / "policy" / "extra.json").write_text("{}")
    assert damage(again / "checkpoints" / "step-000003") == "policy/extra.json is not its own"


def test_a_checkpoint_of_another_run_is_not_used(small_model: Path, again: Path, tmp_path: Path) -> None:
    """Whole in itself, but of a run with another learning rate."""
    go("sft", small_model, tmp_path / "other", steps=4, lr=2e-3)
    shutil.copytree(tmp_path / "other" / "checkpoints" / "step-000004", again / "checkpoints" / "step-000004")
    path, passed = newest(again, Folder(again).identity())
    assert path is not None and path.name == "step-000003"
    assert passed == ["step-000004 (it belongs to another run: its configuration is not that of config.yaml)"]


def test_the_state_of_an_ensemble_of_reward_models_is_saved_and_resumed(small_model: Path, tmp_path: Path) -> None:
    """The name of its state has a slash (scale/ensemble), and no other part has state."""
    go("reward_model", small_model, tmp_path / "rm", steps=1)
    reward = f"ensemble({tmp_path}/rm/model, normalise=2)"
    go("grpo", small_model, tmp_path / "run", reward=reward)
    assert (tmp_path / "run" / "checkpoints" / "step-000002" / "state" / "scale" / "ensemble.json").is_file()
    half = halted_after(1, tmp_path / "run", tmp_path / "half")
    burnish.resume(half)
    same_run(tmp_path / "run", half)


def test_more_steps_and_another_place_are_the_same_run(again: Path) -> None:
    moved = again.rename(again.with_name("moved"))
    heard = Hearing()
    burnish.resume(moved, steps=4, save_every=2, keep=7, observer=heard)
    assert heard.run.start == 3 and not heard.said and saved(moved)[-1] == "step-000004"


def test_a_longer_run_that_is_killed_needs_no_flags(
    again: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Extended from three steps to six and killed after the fourth: the doctor and a plain resume know of six."""
    burnish.resume(again, steps=6)
    half = halted_after(4, again, tmp_path / "half")
    cut(half, 4)
    assert main(["doctor", str(half)]) == 0
    said = capsys.readouterr().out
    assert "4 of 6 steps" in said and "It can be resumed exactly from step-000004" in said
    burnish.resume(half)
    same_run(again, half)
    assert main(["doctor", str(half)]) == 0 and "6 of 6 steps" in capsys.readouterr().out


def test_what_was_chosen_by_the_machine_is_written_down(again: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The token budget decides in which order gradients are added up: a resumed run takes the one it began with."""
    monkeypatch.setattr("burnish.run.plan.token_budget", lambda model, device: 64)
    heard = Hearing()
    burnish.resume(again, steps=4, observer=heard)
    assert heard.run.settings.token_budget == 8192


# ------------------------------------------------------------------------------------------ before the first checkpoint


@pytest.mark.parametrize("logged", [0, 1])
def test_a_run_without_a_checkpoint_begins_again_and_ends_the_same(finished: Path, again: Path, logged: int) -> None:
    """Killed while loading, or in the second step, with its first checkpoint half written."""
    for name in ("checkpoints", "model"):
        shutil.rmtree(again / name)
    cut(again, logged)
    if logged:
        (again / "checkpoints" / ".step-000001.partial" / "policy").mkdir(parents=True)
    burnish.resume(again)
    assert not differences(finished, again)
    assert saved(again) == ["step-000001", "step-000002", "step-000003"]


def test_a_folder_whose_making_was_interrupted_can_be_made_again(small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.yaml.partial").write_text("meth")
    go("sft", small_model, tmp_path / "run", steps=1)
    assert saved(tmp_path / "run") == ["step-000001"]


# ------------------------------------------------------------------------------------------------ saving while training


def test_training_goes_on_while_a_checkpoint_is_written(
    small_model: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer of step 1 is held until step 2 has moved the weights: what it writes is still step 1's."""
    moved = threading.Event()
    write = checkpoint.write

    def late(folder: Path, contents: Contents) -> Path:
        if contents.step == 1:
            assert moved.wait(30)
        return write(folder, contents)

    class Watching(Hearing):
        def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
            if report.clock.step == 1:
                assert saved_now() == [], "the first checkpoint is not there yet"
                moved.set()

    def saved_now() -> list[str]:
        return [name for name in saved(tmp_path / "run") if not name.startswith(".")] if place.is_dir() else []

    place = tmp_path / "run" / "checkpoints"
    monkeypatch.setattr(async_save.checkpoint, "write", late)
    heard = Watching()
    go("sft", small_model, tmp_path / "run", steps=3, observer=heard)
    assert moved.is_set() and heard.saves == ["step-000001", "step-000002", "step-000003"]
    assert not differences(finished, tmp_path / "run")


def test_weights_do_not_move_before_they_were_read(
    small_model: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copying is made slow: the update waits for it, and the wait is what is called the stall."""
    copy = HostBuffers.copy

    def slow(self: HostBuffers, *given: Any) -> dict[int, torch.Tensor]:
        threading.Event().wait(2.0)  # far longer than a step takes, on a busy machine too
        return copy(self, *given)

    monkeypatch.setattr(HostBuffers, "copy", slow)
    go("sft", small_model, tmp_path / "run", steps=3)
    assert not differences(finished, tmp_path / "run")
    stalls = [row["saving"] for row in log_rows(tmp_path / "run", "timings")]
    assert stalls[0] == 0 and min(stalls[1:]) > 0.1


@pytest.mark.parametrize("method", ["nlpo", "nash_ema", "trpo", "archer"])
def test_followers_and_other_moves_wait_as_well(
    method: str, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots, averages, trust regions, several phases: saving every step changes nothing that is saved."""
    more: dict[str, Any] = {"reward": function(tmp_path / "r.py", COIN, "coin"), "n": 2, "steps": 3}
    if method == "archer":
        more = {
            "task": "guess",
            "n": 1,
            "batch": 2,
            "critic_warmup": 0,
            "critic_updates": 1,
            "actor_updates": 1,
            "steps": 3,
        }
    go(method, small_model, tmp_path / "calm", save_every=0, **more)
    copy = HostBuffers.copy

    def slow(self: HostBuffers, *given: Any) -> dict[int, torch.Tensor]:
        threading.Event().wait(0.2)
        return copy(self, *given)

    monkeypatch.setattr(HostBuffers, "copy", slow)
    go(method, small_model, tmp_path / "busy", **more)
    same_run(tmp_path / "calm", tmp_path / "busy")
    shutil.rmtree(tmp_path / "busy" / "checkpoints" / "step-000003")
    shutil.rmtree(tmp_path / "busy" / "model")
    burnish.resume(tmp_path / "busy")
    same_run(tmp_path / "calm", tmp_path / "busy")


def test_without_memory_for_a_copy_the_update_waits_for_the_disk(
    small_model: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostBuffers, "fits", lambda self, size: False)
    monkeypatch.setattr(HostBuffers, "copy", lambda *given: pytest.fail("there is no memory"))
    go("sft", small_model, tmp_path / "run", steps=3)
    assert not differences(finished, tmp_path / "run")


def test_tensors_that_share_memory_are_copied_once() -> None:
    whole = torch.arange(6.0)
    tied, other = whole.view(2, 3), torch.ones(2, 3)
    staging = HostBuffers()
    found = staging.copy([tied, other, whole.view(2, 3)])
    assert torch.equal(found[id(tied)], tied) and len({id(t) for t in found.values()}) == 2
    whole += 1
    again = staging.copy([tied, other])
    assert again[id(tied)] is found[id(tied)] and torch.equal(again[id(tied)], tied), "buffers are kept"


def test_an_error_of_the_writer_is_heard_at_the_next_step(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path, contents: Contents) -> Path:
        raise ValueError(disk.could_not_save(folder / "checkpoints" / "step-000001", "No space left on device"))

    monkeypatch.setattr(async_save.checkpoint, "write", broken)
    with pytest.raises(ValueError, match=r"could not save .*step-000001: No space left"):
        go("sft", small_model, tmp_path / "run", steps=5)
    assert len(log_rows(tmp_path / "run", "metrics")) <= 2


def test_too_little_room_is_said_at_the_start_and_refused_before_anything_is_written(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_save, "free_bytes", lambda path: 1000)
    heard = Hearing()
    with pytest.raises(ValueError, match=r"it needs \d+ MiB, but the disk has 0 MiB free; nothing saved earlier"):
        go("sft", small_model, tmp_path / "run", steps=2, observer=heard)
    assert len(heard.said) == 1 and "free some before the first is due" in heard.said[0]
    assert not (tmp_path / "run" / "checkpoints").exists()
    monkeypatch.undo()
    burnish.resume(tmp_path / "run")
    assert saved(tmp_path / "run") == ["step-000001", "step-000002"]


# ------------------------------------------------------------------------------------------------ what is kept, and how


def test_every_nth_is_kept_for_good(small_model: Path, tmp_path: Path) -> None:
    go("sft", small_model, tmp_path / "run", steps=7, keep=1, keep_every=3)
    assert saved(tmp_path / "run") == ["step-000003", "step-000006", "step-000007"]


def test_nothing_half_written_is_left_behind(again: Path) -> None:
    for name in (".step-000002.old", ".step-000009.partial"):
        shutil.copytree(again / "checkpoints" / "step-000002", again / "checkpoints" / name)
    burnish.resume(again, steps=4)
    assert saved(again) == ["step-000001", "step-000002", "step-000003", "step-000004"]


def test_text_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.write_text(tmp_path / "a.json", "old")

    def killed(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        disk.write_text(tmp_path / "a.json", "new and longer")
    assert (tmp_path / "a.json").read_text() == "old"


# -------------------------------------------------------------------------------------------------------------- doctor


def test_the_doctor_says_what_is_whole(again: Path, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(again)
    assert main(["doctor", str(again), "--same-as", str(finished)]) == 0
    said = capsys.readouterr().out
    assert "✓ step-000003" in said and "intact, 3 steps done" in said and "The run is finished and intact." in said
    assert "bit for bit" in said and contents(again) == before


def test_the_doctor_says_what_is_not(again: Path, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = again / "checkpoints" / "step-000003" / "policy" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    (again / "checkpoints" / ".step-000004.partial").mkdir()
    assert main(["doctor", str(again), "--same-as", str(finished)]) == 1
    said = capsys.readouterr().out
    assert "✗ step-000003    damaged: policy/model.safetensors is changed" in said
    assert (
        "- .step-000004.partial" in said
        and "It can be resumed exactly from step-000002: burnish train --resume" in said
    )
    assert main(["doctor", str(again.parent)]) == 2
    assert tensors(finished / "model")
