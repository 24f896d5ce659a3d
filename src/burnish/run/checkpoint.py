"""Checkpoints: everything that a run is, written aside and then renamed, with a manifest of hashes. No pickle.

checkpoints/step-000040/
  step.json                 the next step, the versions of the members, the identity of the run
  MEMBER/                   a Hugging Face directory for every member whose weights can have changed
  MEMBER/optimiser.safetensors
  state/NAME.json           the memory of parts (stores, curricula)
  manifest.json             the sha256 of every other file
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from burnish.cast.lora import is_lora
from burnish.cast.member import Member
from burnish.cast.save import save_directory
from burnish.cast.stage import Cast
from burnish.parts import Stateful
from burnish.run.disk import remove_directory, step_back, whole_directory

OPTIMISER = "optimiser.safetensors"
MANIFEST = "manifest.json"
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Saved:
    """One member's share of a checkpoint: its weights and its optimiser's tensors, live until they are copied."""

    member: Member
    weights: Tensors
    optimiser: Tensors | None


@dataclass(frozen=True)
class Contents:
    """What a checkpoint will hold. Tensors are those of the cast itself: they are valid until the weights move."""

    step: int
    members: tuple[Saved, ...]
    texts: dict[str, str] = field(default_factory=dict)

    def tensors(self) -> Iterator[Tensor]:
        for saved in self.members:
            yield from saved.weights.values()
            yield from (saved.optimiser or {}).values()

    def bytes(self) -> int:
        """The room that it takes on the disk, but for tokenizers and other small files."""
        return sum(t.numel() * t.element_size() for t in self.tensors()) + sum(map(len, self.texts.values()))

    def with_tensors(self, new: dict[int, Tensor]) -> Contents:
        """The same with other tensors in the places of the old ones, found by `id`."""
        members = tuple(
            replace(saved, weights=_swapped(saved.weights, new), optimiser=saved.optimiser and _swapped(saved.optimiser, new))
            for saved in self.members
        )  # fmt: skip
        return replace(self, members=members)


def collect(step: int, memories: Mapping[str, Stateful], cast: Cast, run: str = "") -> Contents:
    """Everything that a run is before step `step`. Memories are written down now, tensors are only pointed at."""
    members = tuple(
        Saved(member, _weights(member), member.trainer.state_dict() if member.trainer is not None else None)
        for member in cast
        if member.role.liveness != "frozen"
    )
    texts = {f"state/{name}.json": json.dumps(item.state_dict()) for name, item in memories.items()}
    versions = {member.name: member.version for member in cast}
    texts["step.json"] = json.dumps({"step": step, "versions": versions, "run": run})
    return Contents(step, members, texts)


def write(folder: Path, contents: Contents) -> Path:
    """Write checkpoints/step-N of a run folder: all of it, or nothing. For a thread of its own, which steps back."""
    final = folder / "checkpoints" / f"step-{contents.step:06d}"
    with whole_directory(final) as aside:
        for saved in contents.members:
            _refuse_infinite(saved, contents.step)
            save_member(saved.member, aside / saved.member.name, weights=saved.weights)
            if saved.optimiser is not None:
                save_file(saved.optimiser, aside / saved.member.name / OPTIMISER)
        for name, text in contents.texts.items():
            (aside / name).parent.mkdir(exist_ok=True)
            (aside / name).write_text(text)
        step_back()
        (aside / MANIFEST).write_text(_manifest(aside))
    return final


def save_member(member: Member, path: Path, *, merge: bool = False, weights: Tensors | None = None) -> None:
    """A directory that transformers loads: the model (or its adapters; merge=True adds them into the weights) and the tokenizer.

    weights: what to save in place of the model's present weights.
    """
    save_directory(member.model, member.chat, path, merge=merge, weights=weights)


def publish_model(member: Member, path: Path, *, merge: bool = False) -> None:
    """The run's product as `path`, replacing what an earlier stop left there."""
    with whole_directory(path) as aside:
        save_member(member, aside, merge=merge)


def retire(folder: Path, newest: Path, keep: int, keep_every: int) -> None:
    """Remove the checkpoints before `newest` that are neither among the last `keep` nor at a multiple of `keep_every`."""
    past = [path for path in checkpoints(folder) if path.name <= newest.name]
    for old in past[:-keep]:
        if not keep_every or step_of(old) % keep_every:
            remove_directory(old)


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run folder, whole or damaged, oldest first."""
    return sorted(path for path in (folder / "checkpoints").glob("step-*") if path.is_dir())


def step_of(path: Path) -> int:
    """The step that a checkpoint goes on with, by its name."""
    number = path.name.removeprefix("step-")
    return int(number) if number.isdigit() else 0


def newest(folder: Path, run: str = "") -> tuple[Path | None, list[str]]:
    """The newest checkpoint of this run whose files are all as they were written, and what was passed over, in words.

    None where no checkpoint was ever finished: the run begins at its beginning. Only damaged ones are an error.
    """
    passed: list[str] = []
    for path in reversed(checkpoints(folder)):
        wrong = damage(path, run)
        if not wrong:
            return path, passed
        passed.append(f"{path.name} ({wrong})")
    if passed:
        raise ValueError(
            f"there is no usable checkpoint in {folder / 'checkpoints'}; damaged: {', '.join(passed)}; "
            "start a new run with --out, or take the damaged ones away to begin this one again"
        )
    return None, passed


def damage(path: Path, run: str = "") -> str:
    """What is wrong with a checkpoint, or nothing. `run`: the identity of the run that it should belong to."""
    try:
        text = (path / MANIFEST).read_text()
    except (OSError, ValueError):
        return "its manifest cannot be read"
    if text != (now := _manifest(path)):  # the manifest that these files ought to have, byte for byte
        return _difference(text, json.loads(now))
    whose = json.loads((path / "step.json").read_text()).get("run")
    return "it belongs to another run: its configuration is not that of config.yaml" if run and whose != run else ""


def restore(path: Path, memories: Mapping[str, Stateful], cast: Cast) -> int:
    """Optimisers, memories and versions of a checkpoint, into a cast built from its weights; the step to go on with."""
    head = json.loads((path / "step.json").read_text())
    for member in cast:
        member.version = head["versions"][member.name]
        if member.trainer is not None:
            member.trainer.load_state_dict(load_file(path / member.name / OPTIMISER))
    for name, item in memories.items():
        item.load_state_dict(json.loads((path / "state" / f"{name}.json").read_text()))
    return int(head["step"])


def _difference(said: str, found: dict[str, str]) -> str:
    try:
        expected = json.loads(said)
    except ValueError:
        expected = None
    if not isinstance(expected, dict):
        return "its manifest cannot be read"
    for name in sorted(expected.keys() | found.keys()):
        if found.get(name) != expected.get(name):
            return f"{name} is {'missing' if name not in found else 'changed' if name in expected else 'not its own'}"
    return "its manifest is changed"


def file_hashes(path: Path) -> dict[str, str]:
    """The sha256 of every file below a directory, by name, the manifest itself left out."""
    return {str(file.relative_to(path)): _hash(file) for file in _files(path)}


def _manifest(path: Path) -> str:
    return json.dumps(file_hashes(path), indent=1)


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file() and p != path / MANIFEST)


def _hash(file: Path) -> str:
    """In one piece: a hash by many small ones would ask the training thread for the interpreter's lock at each of them."""
    if not file.stat().st_size:
        return hashlib.sha256().hexdigest()
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return hashlib.sha256(content).hexdigest()


def _weights(member: Member) -> Tensors:
    """What save_pretrained would take: everything, or of a model with adapters the adapters alone."""
    found = member.model.state_dict()
    return {name: t for name, t in found.items() if "lora_" in name} if is_lora(member.model) else found


def _swapped(tensors: Tensors, new: dict[int, Tensor]) -> Tensors:
    return {name: new[id(t)] for name, t in tensors.items()}


def _refuse_infinite(saved: Saved, step: int) -> None:
    parameters = dict(saved.member.model.named_parameters())  # a buffer may hold an infinite mask
    for name, t in saved.weights.items():
        quick = math.isfinite(float(t.sum())) if name in parameters else True  # NaN and infinity survive a sum
        if not quick and not bool(torch.isfinite(t).all()):
            raise FloatingPointError(
                f"the weight {name} of {saved.member.name!r} is not finite after {step} steps: no checkpoint is made of it; "
                "the one before is whole. Start again with a lower --lr"
            )
