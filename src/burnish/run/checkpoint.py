"""Checkpoints: everything that a run is, written aside and then renamed, with a manifest of hashes. No pickle.

checkpoints/step-000040/
  step.json                 the next step, the versions of the members
  MEMBER/                   a Hugging Face directory for every member whose weights can have changed
  MEMBER/optimiser.safetensors
  state/NAME.json           the memory of parts (stores, curricula)
  manifest.json             the sha256 of every other file
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from burnish.cast.lora import is_lora, merged
from burnish.cast.member import Member
from burnish.cast.stage import Cast
from burnish.method import Method

OPTIMISER = "optimiser.safetensors"


def save(folder: Path, step: int, method: Method, cast: Cast, keep: int = 2) -> Path:
    """Write checkpoints/step-N of a run folder; older ones beyond `keep` are removed once this one is whole."""
    final = folder / "checkpoints" / f"step-{step:06d}"
    with _aside(final) as aside:
        for member in cast:
            if member.role.liveness != "frozen":
                save_member(member, aside / member.name)
            if member.trainer is not None:
                save_file(member.trainer.state_dict(), aside / member.name / OPTIMISER)
        (aside / "state").mkdir()
        for name, item in method.stateful().items():
            (aside / "state" / f"{name}.json").write_text(json.dumps(item.state_dict()))
        versions = {member.name: member.version for member in cast}
        (aside / "step.json").write_text(json.dumps({"step": step, "versions": versions}))
        (aside / "manifest.json").write_text(json.dumps(_hashes(aside), indent=1))
    for old in [path for path in checkpoints(folder) if path.name <= final.name][:-keep]:
        shutil.rmtree(old)
    return final


def save_member(member: Member, path: Path, *, merge: bool = False) -> None:
    """A directory that transformers loads: the model (or its adapters; merge=True adds them into the weights) and the tokenizer."""
    model = merged(member.model) if merge and is_lora(member.model) else member.model
    model.save_pretrained(path)  # type: ignore[operator]
    member.chat.tokenizer.save_pretrained(path)


def publish_model(member: Member, path: Path, *, merge: bool = False) -> None:
    """The run's product as `path`, replacing what an earlier stop left there."""
    with _aside(path) as aside:
        save_member(member, aside, merge=merge)


def checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints of a run folder, oldest first."""
    return sorted(p for p in (folder / "checkpoints").glob("step-*") if (p / "manifest.json").is_file())


def newest(folder: Path) -> Path:
    """The newest checkpoint whose files are all as they were written; damaged ones are passed over."""
    damaged = []
    for path in reversed(checkpoints(folder)):
        wrong = damage(path)
        if not wrong:
            return path
        damaged.append(f"{path.name} ({wrong})")
    said = f"; damaged: {', '.join(damaged)}" if damaged else ""
    raise ValueError(f"there is no usable checkpoint in {folder / 'checkpoints'}{said}; start a new run with --out")


def damage(path: Path) -> str:
    """What is wrong with a checkpoint's files, or nothing."""
    try:
        expected = json.loads((path / "manifest.json").read_text())
    except ValueError:
        expected = None
    if not isinstance(expected, dict):
        return "its manifest cannot be read"
    found = _hashes(path)
    for name in sorted(expected.keys() | found.keys()):
        if found.get(name) != expected.get(name):
            return f"{name} is {'missing' if name not in found else 'changed'}"
    return ""


def restore(path: Path, method: Method, cast: Cast) -> int:
    """Optimisers, memories and versions of a checkpoint, into a cast built from its weights; the step to go on with."""
    head = json.loads((path / "step.json").read_text())
    for member in cast:
        member.version = head["versions"][member.name]
        if member.trainer is not None:
            member.trainer.load_state_dict(load_file(path / member.name / OPTIMISER))
    for name, item in method.stateful().items():
        item.load_state_dict(json.loads((path / "state" / f"{name}.json").read_text()))
    return int(head["step"])


def _hashes(path: Path) -> dict[str, str]:
    files = sorted(p for p in path.rglob("*") if p.is_file() and p.name != "manifest.json")
    return {str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@contextlib.contextmanager
def _aside(final: Path) -> Iterator[Path]:
    """A directory to write into that takes its final name only when it is whole; a failure leaves what was there before."""
    aside = final.with_name(f".{final.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        yield aside
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ValueError(
            f"could not save {final}: {why}; nothing saved earlier was touched. Free some disk space and use --resume"
        ) from None
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    if final.exists():
        shutil.rmtree(final)
    aside.rename(final)
