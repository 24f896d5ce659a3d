"""Python objects in place of options: models, tokenizers, rows, rewards. config.yaml holds a name for each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from burnish.config.options import Config
from burnish.models.known_models import resolve
from burnish.models.lora import is_lora
from burnish.reward_functions.resolve import IN_PYTHON, RewardSpec, read_rewards, reward_text
from burnish.run.folder import START, Folder
from burnish.tasks.data import Dataset
from burnish.tasks.source import Source
from burnish.util.files import remove_directory, whole_directory


def passed_task(task: object, options: dict[str, object]) -> tuple[Source | None, dict[str, object]]:
    """A task that was passed as an object, as a source; the options have its name."""
    if task is None:
        return None, options
    if isinstance(task, str | os.PathLike):
        return None, {**options, "task": os.fspath(task)}
    if _is_mixture(task):
        return None, {**options, "task": task}
    if not hasattr(task, "task"):
        if not isinstance(task, Iterable):
            raise ValueError(
                f"task is {task!r:.80}; pass a name, a path, rows (dicts, or a datasets.Dataset) or a Source"
            )
        columns: Any = options.get("columns")
        task = Dataset(task, columns=columns)
    source: Any = task
    return source, {**options, "task": f"{IN_PYTHON}{source.name}"}


def _is_mixture(task: object) -> bool:
    """Whether a list or mapping names several tasks with weights, and is not rows."""
    if isinstance(task, list | tuple | Mapping) and not task:
        return False
    if isinstance(task, Mapping):
        return all(isinstance(weight, int | float) for weight in task.values())
    return isinstance(task, list | tuple) and all(
        isinstance(one, str | os.PathLike) or (isinstance(one, Mapping) and "task" in one and "weight" in one)
        for one in task
    )


def passed_rewards(
    reward: object, options: dict[str, object]
) -> tuple[tuple[RewardSpec, ...] | None, dict[str, object]]:
    """Rewards of which some were passed as objects; the options have their names."""
    if reward is None:
        return None, options
    parts = tuple(read_rewards(reward))
    named = {**options, "reward": reward_text(parts)}
    return (None if all(isinstance(part.what, str) for part in parts) else parts), named


class PassedModel:
    """The configuration of a run whose model may be an object: inside, `model` is a directory.

    A transformers model is saved into the run folder, in its own number format, and loaded from there: the run trains a
    copy, and the object stays as it is. The copy is removed again if the run does not start.
    """

    def __init__(self, config: Config, model: Any, tokenizer: Any) -> None:
        self.config, self.model, self.tokenizer = config, model, tokenizer
        self.folder: Path | None = None

    def __enter__(self) -> Config:
        named = self.model is None or isinstance(self.model, str | os.PathLike)
        if named and self.tokenizer is None:
            return self.config
        source = resolve(self.config.options.model) if named else None
        if source is None:
            _check_model(self.model, self.tokenizer)
        self.folder = Folder.reserve(self.config)
        try:
            with whole_directory(self.folder / START) as aside:
                if source is None:
                    self.model.save_pretrained(aside)
                else:
                    _link(source, aside)
                self.tokenizer.save_pretrained(aside)
        except BaseException:
            self._remove()
            raise
        options = replace(self.config.options, model=str(self.folder / START), out=str(self.folder))
        return replace(self.config, options=options)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._remove()

    def _remove(self) -> None:
        """Remove the copy, and an empty run folder, unless a run began there."""
        if self.folder is None or (self.folder / "config.yaml").exists():
            return
        remove_directory(self.folder / START)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()


def _check_model(model: Any, tokenizer: object) -> None:
    if not hasattr(model, "save_pretrained") or not hasattr(model, "config"):
        raise ValueError(
            f"model is a {type(model).__name__}; pass a transformers model (PreTrainedModel), a name or a directory"
        )
    if is_lora(model):
        raise ValueError(
            "model has LoRA adapters; pass model.merge_and_unload(), or the base model with lora=16 to train new ones"
        )
    if getattr(model, "is_quantized", False):
        raise ValueError("model is quantised, and burnish trains whole weights; load it without quantization_config")
    if tokenizer is None:
        raise ValueError("a model that is passed as an object needs its tokenizer: train(..., model=m, tokenizer=t)")


def _link(source: Path, into: Path) -> None:
    """The weights and configurations of a model directory as links, without the files of its tokenizer."""
    for file in source.resolve().iterdir():
        weights = file.suffix == ".safetensors" or file.name.endswith(".safetensors.index.json")
        if weights or file.name in ("config.json", "generation_config.json"):
            (into / file.name).symlink_to(file)
