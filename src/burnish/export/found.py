"""The model that `burnish export` and `burnish push` are asked for, and the run that it came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from burnish.models.known_models import MODELS, adapted_model, is_adapter, resolve
from burnish.models.load import stored_outputs
from burnish.report.catalogue import pick
from burnish.store.reader import is_run
from burnish.util.paths import expanded


@dataclass(frozen=True)
class Found:
    """A model directory.

    run      the folder of the run that wrote it; None for a model that no run here wrote
    adapter  whether it holds LoRA adapters
    base     the whole model that the adapters belong to; of a whole model, its own directory
    scores   whether it is a reward model
    """

    path: Path
    run: Path | None
    adapter: bool
    base: Path
    scores: bool


def find_model(name: str, checkpoint: str = "last") -> Found:
    """The product of a run (a folder, the beginning of its name, `last`), or a model by name or directory.

    checkpoint: of a run, last (the product), best, or the number of a step that was saved
    """
    run = _run(name)
    if run is None and checkpoint != "last":
        raise ValueError(f"--checkpoint {checkpoint} is for runs, and {name!r} is a model; leave it out")
    path = resolve(str(_product(run, checkpoint))) if run is not None else resolve(name)
    return Found(path, run or _writer(path), is_adapter(path), adapted_model(path), bool(stored_outputs(path)))


def _run(name: str) -> Path | None:
    """The run that a name stands for. A model of that name, or a directory with one, comes first."""
    path = expanded(name)
    if path.is_dir() and is_run(path):
        return path
    if path.exists() or name in MODELS or "/" in name:
        return None
    return pick(name)


def _writer(path: Path) -> Path | None:
    """The run in whose folder a model lies: RUN/model, RUN/best, RUN/checkpoints/step-N/policy."""
    for folder in (path.parent, *path.resolve().parents[:3]):
        if is_run(folder):
            return folder
    return None


def _product(run: Path, checkpoint: str) -> Path:
    if checkpoint == "last":
        if (run / "model").is_dir():
            return run / "model"
        raise ValueError(
            f"{run} has no model/ yet: the run was stopped, or trained no weights; finish it with burnish train "
            f"--resume {run}, or pass --checkpoint with the number of a saved step"
        )
    if checkpoint == "best":
        if (run / "best").is_dir():
            return run / "best"
        raise ValueError(f"{run} has no best checkpoint; it is kept where --eval-every measures the run")
    steps = sorted((run / "checkpoints").glob("step-*"))
    there = {str(int(step.name.removeprefix("step-"))): step for step in steps if step.name[5:].isdigit()}
    if checkpoint not in there:
        listed = ", ".join(there) or "none"
        raise ValueError(f"{run} has no checkpoint {checkpoint!r}; give last, best, or one of the steps: {listed}")
    models = sorted(place.parent for place in there[checkpoint].glob("*/*config.json"))
    policies = [model for model in models if model.name == "policy"] or models
    if not policies:
        raise ValueError(f"{there[checkpoint]} holds no model; give another --checkpoint")
    return policies[0]
