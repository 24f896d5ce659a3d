"""The plan of a recipe: every stage resolved and checked as far as it can be known before the first one starts.

What a stage will make is not there yet. A model of an earlier stage is checked by the model that this one starts from;
a file that a command will write is checked by rows in its format.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from burnish.config.flags import read
from burnish.config.options import Config, Options, configure, method_fields, one_length, unknown
from burnish.config.resumable import ENDS, RESUMABLE
from burnish.config.words import nearest
from burnish.core.method import Method
from burnish.methods.table import Entry, find
from burnish.models.known_models import resolve
from burnish.recipes.formats import columns_of
from burnish.recipes.maker import Maker
from burnish.recipes.recipe import Recipe, Stage, filled, references
from burnish.run.data_versions import present
from burnish.run.plan import plan as plan_run
from burnish.tasks.resolve import datasets_of, resolve_task


@dataclass(frozen=True)
class PlannedStage:
    """A stage with all its options, of which references are still names.

    product  the model or the file that it will make, below the recipe's folder; empty for one that only measures
    inputs   versions of the data and models from outside of the recipe
    reward   whether its model gives numbers instead of replies
    """

    stage: Stage
    options: dict[str, object]
    uses: tuple[str, ...]
    product: str
    inputs: dict[str, object] = field(default_factory=dict)
    reward: bool = False

    @property
    def name(self) -> str:
        return self.stage.name

    def same(self) -> dict[str, object]:
        """What makes it the same stage: options that change what it makes, and the versions of its inputs."""
        free = {*RESUMABLE, "device", "json"} - set(ENDS)
        return {**{key: value for key, value in self.options.items() if key not in free}, "inputs": self.inputs}


@dataclass
class _Known:
    """What the checks know of earlier stages: stand-ins for what they will make, and their plans."""

    folder: Path
    products: dict[str, str] = field(default_factory=dict)
    planned: dict[str, PlannedStage] = field(default_factory=dict)


def plan_recipe(recipe: Recipe, makers: Mapping[str, Maker]) -> list[PlannedStage]:
    """Check every stage; ValueError names the stage and what is wrong with it."""
    _check_shared(recipe, makers)
    with tempfile.TemporaryDirectory() as folder:
        context = _Known(Path(folder))
        for stage in recipe.stages:
            try:
                options = all_options(recipe, stage, makers)
                uses = tuple(dict.fromkeys(references(options, recipe.names())))
                _check_kinds(options, context.planned)
                check = _check_training if stage.command == "train" else _check_command
                context.planned[stage.name] = check(stage, options, uses, context, makers)
            except ValueError as error:
                raise ValueError(f"stage {stage.name!r}: {error}") from None
        return list(context.planned.values())


def configured(stage: Stage, options: Mapping[str, object]) -> tuple[Entry, Config]:
    """The configuration of a training stage whose references are filled in."""
    entry = find(stage.method)
    return entry, configure(entry, stage.method, one_length({k: v for k, v in options.items() if k != "method"}))


def _known_options(stage: Stage, makers: Mapping[str, Maker]) -> set[str]:
    if stage.command == "train":
        own = method_fields(find(stage.method))
        return {"method", "reward_model", *own, *(one.name for one in dataclasses.fields(Options))}
    if stage.command not in makers:
        raise ValueError(f"there is no command {stage.command!r} for a stage; there are train, {', '.join(makers)}")
    return makers[stage.command].known()


def _check_shared(recipe: Recipe, makers: Mapping[str, Maker]) -> None:
    """Raise ValueError for a shared option that no stage has."""
    options = {name for stage in recipe.stages for name in _known_options(stage, makers)}
    for name in recipe.options:
        if name not in options or name == "method":
            raise ValueError(f"options: no stage of the recipe has the option {name!r}{nearest(name, options)}")


def all_options(recipe: Recipe, stage: Stage, makers: Mapping[str, Maker]) -> dict[str, object]:
    """The options of a stage, with those of the recipe that it has and does not set itself."""
    own_options = _known_options(stage, makers)
    for name in stage.options:
        if name not in own_options:
            raise ValueError(unknown(stage.what, name, own_options))
    own = stage.options
    length = own.keys() & {"steps", "epochs"}
    given = {"model": recipe.model, "task": recipe.task, **recipe.options}
    shared = {k: v for k, v in given.items() if k in own_options and not (length and k in ("steps", "epochs"))}
    return {**shared, **own}


def _check_kinds(options: Mapping[str, object], planned: Mapping[str, PlannedStage]) -> None:
    """A model is made by a training stage, a task by a stage that writes a file."""
    for key, wanted in (("model", "model"), ("task", "file")):
        one = planned.get(str(options.get(key)))
        if one is None:
            continue
        made = "" if not one.product else "model" if one.stage.command == "train" else "file"
        if made != wanted:
            raise ValueError(
                f"{key} is {one.name!r}, a stage that makes {f'a {made}' if made else 'neither model nor file'}; name "
                f"one that makes a {wanted}"
            )


def _check_training(
    stage: Stage, options: dict[str, object], uses: tuple[str, ...], context: _Known, makers: Mapping[str, Maker]
) -> PlannedStage:
    ready = filled(options, context.products)
    entry, config = configured(stage, ready)
    options = _typed(options, ready, config.to_dict())
    if config.options.on == "ray":
        planned = plan_run(entry, replace(config, options=replace(config.options, on="here")))
    else:
        planned = plan_run(entry, config)
    start = context.planned.get(str(options["model"]))
    reward = _gives_numbers(planned.method)
    if start is not None and start.reward and not reward:
        raise ValueError(f"model is {start.name!r}, which is a reward model; it cannot give replies")
    context.products[stage.name] = config.options.model
    inputs: dict[str, object] = dict(planned.rewards)
    if not list(references({"task": options["task"]}, list(context.planned))):
        inputs |= present(planned.source)
    if start is None:
        inputs["model"] = fingerprint(planned.base)
    learns = any(phase.learn.trainees for phase in planned.method.phases)
    return PlannedStage(stage, options, uses, f"{stage.name}/model" if learns else "", inputs, reward)


def _typed(options: dict[str, object], ready: dict[str, object], values: Mapping[str, object]) -> dict[str, object]:
    """The options with values of their types (50, not "50"), where they do not refer to a stage."""
    return {key: values.get(key, value) if ready[key] == value else value for key, value in options.items()}


def _gives_numbers(method: Method) -> bool:
    return method.models[method.product].outputs > 0


def _check_command(
    stage: Stage, options: dict[str, object], uses: tuple[str, ...], context: _Known, makers: Mapping[str, Maker]
) -> PlannedStage:
    maker = makers[stage.command]
    ready = filled(options, context.products)
    parsed: tuple[list[str], object] | None = read(maker.options, maker.name, maker.words(ready), plain=1)
    if parsed is None:
        raise ValueError(f"`help` is no option of a stage; see burnish {maker.name} --help")
    options = _typed(options, ready, vars(parsed[1]))
    inputs: dict[str, object] = {}
    start = context.planned.get(str(options.get("model")))
    if start is not None and start.reward and maker.replies:
        raise ValueError(f"model is {start.name!r}, which is a reward model; it cannot give replies")
    if start is None and "model" in ready:
        inputs["model"] = fingerprint(resolve(str(ready["model"])))
    source = resolve_task(str(ready["task"]), columns=columns_of(ready)) if "task" in ready else None
    if source is not None and str(options["task"]) not in context.planned:
        inputs |= {one.name: one.version() for one in datasets_of(source)}
    product = ""
    if maker.writes:
        product = f"{stage.name}/{stage.name}.jsonl"
        context.products[stage.name] = _stand_in(context.folder / f"{stage.name}.jsonl", maker, ready)
    return PlannedStage(stage, options, uses, product, inputs)


def _stand_in(file: Path, maker: Maker, options: Mapping[str, object]) -> str:
    """A file in the format that a command will write."""
    assert maker.like is not None, maker.name
    file.write_text("".join(json.dumps(row) + "\n" for row in maker.like(options)))
    return str(file)


def fingerprint(model: Path) -> str:
    """A hash of the names and sizes of a model's files, and of its configuration."""
    digest = hashlib.sha256()
    for file in sorted(model.iterdir()):
        if file.is_file() and file.suffix in (".json", ".safetensors"):
            digest.update(f"{file.name} {file.stat().st_size}\n".encode())
    config = model / "config.json"
    digest.update(config.read_bytes() if config.is_file() else b"")
    return digest.hexdigest()[:16]
