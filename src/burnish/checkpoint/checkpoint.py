"""Checkpoint format: written to a temporary directory and then renamed, with a manifest of hashes. No pickle.

checkpoints/step-000040/
  step.json                 the next step, the weight versions of the models, the identity hash of the run
  MODEL/                    a Hugging Face directory for every model whose weights can have changed
  MODEL/optimiser.safetensors, or optimiser-00001-of-00008.safetensors ... where ranks hold parts of it
  state/NAME.json           the state of parts (replay buffers, curricula)
  manifest.json             the sha256 of every other file
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from burnish.core.parts import Stateful
from burnish.models import shards, write_by_ranks
from burnish.models.build import Models
from burnish.models.lora import is_adapter_weight, is_lora
from burnish.models.model import Model
from burnish.models.precision import for_adapters
from burnish.models.save import save_directory
from burnish.models.sharded_states import ShardedStates
from burnish.models.write_by_ranks import OPTIMISER, stored_states
from burnish.util.files import could_not_save, remove_directory, step_back, whole_directory
from burnish.util.plainfile import read_json, read_text

MANIFEST = "manifest.json"
ADDED = {"heldout", "token_room"}  # states that the checkpoints of older versions do not have
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class ModelTensors:
    """One model in a checkpoint: its weights and its optimiser's tensors, not copied yet."""

    model: Model
    weights: Tensors
    optimiser: Tensors | None


@dataclass(frozen=True)
class Contents:
    """The contents of a checkpoint.

    Tensors are those of the models themselves, so they are valid until weights change.
    """

    step: int
    models: tuple[ModelTensors, ...]
    texts: dict[str, str] = field(default_factory=dict)

    def tensors(self) -> Iterator[Tensor]:
        for saved in self.models:
            yield from saved.weights.values()
            yield from (saved.optimiser or {}).values()

    def bytes(self) -> int:
        """Its size on disk, without tokenizers and other small files."""
        return sum(t.numel() * t.element_size() for t in self.tensors()) + sum(map(len, self.texts.values()))

    def with_tensors(self, new: dict[int, Tensor]) -> Contents:
        """The same with each tensor replaced by new[id(tensor)]."""

        def swapped(saved: ModelTensors) -> ModelTensors:
            optimiser = saved.optimiser and _swapped(saved.optimiser, new)
            return replace(saved, weights=_swapped(saved.weights, new), optimiser=optimiser)

        return replace(self, models=tuple(map(swapped, self.models)))


def collect(step: int, memories: Mapping[str, Stateful], models: Models, run: str = "") -> Contents:
    """The state of a run before step `step`: states of parts are serialised now, tensors are referenced, not copied."""
    saved = tuple(
        ModelTensors(model, _weights(model), model.trainer.state_dict() if model.trainer is not None else None)
        for model in models
        if model.role.liveness != "frozen" and model.shards is None
    )
    texts = {f"state/{name}.json": json.dumps(item.state_dict()) for name, item in memories.items()}
    versions = {model.name: model.version for model in models}
    texts["step.json"] = json.dumps({"step": step, "versions": versions, "run": run})
    return Contents(step, saved, texts)


def write(folder: Path, contents: Contents, others: Callable[[Path], None] = lambda _: None) -> Path:
    """Write checkpoints/step-N of a run folder atomically. For a background thread: it lowers the thread's priority.

    others: writes what the contents leave out because the ranks hold parts of it (models/write_by_ranks.py)
    """
    final = path_of(folder, contents.step)
    try:
        final.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise ValueError(could_not_save(final, error.strerror or str(error))) from None
    with whole_directory(final) as aside:
        others(aside)
        for saved in contents.models:
            _require_finite(saved, contents.step)
            save_directory(saved.model.module, saved.model.chat, aside / saved.model.name, weights=saved.weights)
            if saved.optimiser is not None:
                save_file(saved.optimiser, aside / saved.model.name / OPTIMISER)
        for name, text in contents.texts.items():
            (aside / name).parent.mkdir(parents=True, exist_ok=True)  # a name may have slashes: scale/ensemble
            (aside / name).write_text(text)
        step_back()
        (aside / MANIFEST).write_text(_manifest(aside))
    return final


def publish_product(models: Models, name: str, path: Path, *, merge: bool = False) -> None:
    """Save the run's product: rank 0 does, or all ranks where each holds a part of it."""
    if not write_by_ranks.divided(models):
        if not models.ranks.rank:
            publish_model(models[name], path, merge=merge)
        return
    if models.ranks.rank:
        shards.serve_once(models)
        return
    with whole_directory(path) as aside:
        write_by_ranks.ask(models, aside, [name], product=True)


def publish_model(model: Model, path: Path, *, merge: bool = False) -> None:
    """Save the run's product as `path`, replacing what an interrupted run left there.

    Its weights have the number format of the model that the run started from, or the one that --dtype names.
    """
    adapters = is_lora(model.module) and not merge
    precision = for_adapters(model.precision) if adapters else model.precision
    weights = _weights(model) if adapters else None
    with whole_directory(path) as aside:
        save_directory(model.module, model.chat, aside, merge=merge, weights=weights, precision=precision)


def retire(folder: Path, newest: Path, keep: int, keep_every: int, best: int | None = None) -> None:
    """Remove checkpoints up to `newest`, except the last `keep`, multiples of `keep_every`, and step `best`."""
    past = [path for path in checkpoints(folder) if path.name <= newest.name]
    for old in past[:-keep]:
        if (not keep_every or step_of(old) % keep_every) and step_of(old) != best:
            remove_directory(old)


def checkpoints(folder: Path) -> list[Path]:
    """The paths of a run folder's checkpoints, intact or damaged, oldest first; recognised by name."""
    directory = folder / "checkpoints"
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ValueError(
            f"the checkpoints in {directory} cannot be read: {error.strerror}; restore the folder"
        ) from None
    return [directory / name for name in sorted(names) if name.startswith("step-")]


def path_of(folder: Path, step: int) -> Path:
    """The path of a run folder's checkpoint after so many steps."""
    return folder / "checkpoints" / f"step-{step:06d}"


def step_of(path: Path) -> int:
    """The step that a checkpoint resumes from, by its name."""
    number = path.name.removeprefix("step-")
    return int(number) if number.isdigit() else 0


def newest(folder: Path, run: str = "") -> tuple[Path | None, list[str]]:
    """The newest intact checkpoint of this run, and descriptions of the damaged ones that were skipped.

    None if the run has no checkpoint: it starts from the beginning. ValueError if all of them are damaged.
    """
    skipped: list[str] = []
    for path in reversed(checkpoints(folder)):
        wrong = damage(path, run)
        if not wrong:
            return path, skipped
        skipped.append(f"{path.name} ({wrong})")
    if skipped:
        raise ValueError(
            f"there is no usable checkpoint in {folder / 'checkpoints'}; damaged: {', '.join(skipped)}; "
            "start a new run with --out, or remove the damaged ones to restart this one from the beginning"
        )
    return None, skipped


def damage(path: Path, run: str = "") -> str:
    """What is wrong with a checkpoint; empty if it is intact. run: the identity hash of its run."""
    if odd := odd_file(path):
        return odd
    try:
        text = read_text(path / MANIFEST)
        if text != (now := _manifest(path)):  # the manifest that the present files give
            return _difference(text, json.loads(now))
        whose = read_json(path / "step.json").get("run")
    except OSError as error:
        return f"{error.filename or 'a file'} cannot be read ({error.strerror})"
    except (ValueError, AttributeError):
        return "its manifest cannot be read"
    return "it belongs to another run: its configuration is not that of config.yaml" if run and whose != run else ""


def odd_file(path: Path) -> str:
    """The first entry of a checkpoint that is neither a file nor a directory with files; opening a FIFO would block."""
    if not os.path.isdir(path):
        return "it is not a directory"
    for place, folders, names in os.walk(path):
        if place != os.fspath(path) and not folders and not names:
            return f"{os.path.relpath(place, path)} is an empty directory"
        for name in names:
            file = os.path.join(place, name)
            if not os.path.isfile(file):
                return f"{os.path.relpath(file, path)} is not a file"
    return ""


def restore(path: Path, memories: Mapping[str, Stateful], models: Models) -> int:
    """Load optimisers, states and versions into models built from a checkpoint's weights; return the next step."""
    head = read_json(path / "step.json")
    for model in models:
        model.version = head["versions"][model.name]
        if model.trainer is not None:
            model.trainer.load_state_dict(stored_states(path / model.name))
    for name, item in memories.items():
        if name not in ADDED or (path / "state" / f"{name}.json").exists():
            item.load_state_dict(read_json(path / "state" / f"{name}.json"))
    return int(head["step"])


def _difference(manifest: str, present: dict[str, str]) -> str:
    """The first file whose hash differs from the manifest."""
    try:
        expected = json.loads(manifest)
    except (ValueError, RecursionError):
        expected = None
    if not isinstance(expected, dict):
        return "its manifest cannot be read"
    for name in sorted(expected.keys() | present.keys()):
        if present.get(name) != expected.get(name):
            return f"{name} is {'missing' if name not in present else 'changed' if name in expected else 'not its own'}"
    return "its manifest is changed"


def file_hashes(path: Path) -> dict[str, str]:
    """The sha256 of every file below a directory, by name, without the manifest itself."""
    return {str(file.relative_to(path)): _hash(file) for file in _files(path)}


def _manifest(path: Path) -> str:
    return json.dumps(file_hashes(path), indent=1)


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*") if p.is_file() and p != path / MANIFEST)


def _hash(file: Path) -> str:
    """The sha256 of a file, in one call: hashing in pieces would take the GIL for each piece."""
    if not file.stat().st_size:
        return hashlib.sha256().hexdigest()
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return hashlib.sha256(content).hexdigest()


def _weights(model: Model) -> Tensors:
    """The tensors that save_pretrained would save: all, or only the adapters of a LoRA model."""
    tensors = model.module.state_dict()
    states = model.trainer.states if model.trainer is not None else None
    if isinstance(states, ShardedStates) and states.whole:  # fp32 master weights, of which the module has the bf16 copy
        masters = {states.named[name].data_ptr(): whole for name, whole in states.whole.items()}
        return {name: masters.get(tensor.data_ptr(), tensor) for name, tensor in tensors.items()}
    return {name: t for name, t in tensors.items() if is_adapter_weight(name)} if is_lora(model.module) else tensors


def _swapped(tensors: Tensors, new: dict[int, Tensor]) -> Tensors:
    return {name: new[id(t)] for name, t in tensors.items()}


def _require_finite(saved: ModelTensors, step: int) -> None:
    """Raise FloatingPointError if a weight is NaN or infinite."""
    parameters = dict(saved.model.module.named_parameters())  # buffers are not checked: a mask may be infinite
    for name, t in saved.weights.items():
        quick = math.isfinite(float(t.sum())) if name in parameters else True  # NaN and infinity survive a sum
        if not quick and not bool(torch.isfinite(t).all()):
            raise FloatingPointError(
                f"the weight {name} of {saved.model.name!r} is not finite after {step} steps, so no checkpoint is "
                "saved; the previous one is intact. Start again with a lower --lr"
            )
