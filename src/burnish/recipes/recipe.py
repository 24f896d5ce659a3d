"""A recipe: what its file says, with the changes of the command line, before anything is resolved."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.config.options import SPELLED
from burnish.models.known_models import MODELS
from burnish.tasks.table import GENERATED
from burnish.util.plainfile import read_yaml

KEYS = ("about", "papers", "represents", "leaves_out", "model", "task", "options", "stages", "sizes")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
REFERENCE = re.compile(r"\{([A-Za-z][A-Za-z0-9_-]*)\}")  # {stage} within a text
WHOLE = ("model", "task")  # options whose value may be the bare name of a stage


@dataclass(frozen=True)
class Stage:
    """One stage: `train` or another command, and its own options as they are written (method among them)."""

    name: str
    command: str
    options: dict[str, object]

    @property
    def method(self) -> str:
        """The method of a training stage."""
        return str(self.options["method"])

    @property
    def what(self) -> str:
        """The method, or the command."""
        return self.method if self.command == "train" else self.command


@dataclass(frozen=True)
class Recipe:
    """A recipe as it is written.

    model, task  of stages that name none
    options      shared by all stages that have an option of this name
    sizes        other settings by name, such as those of the paper: model, task, options, stages
    """

    name: str
    stages: tuple[Stage, ...]
    model: str = "tiny"
    task: str = "add"
    options: dict[str, object] = field(default_factory=dict)
    about: str = ""
    papers: tuple[str, ...] = ()
    represents: str = ""
    leaves_out: str = ""
    sizes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    def names(self) -> list[str]:
        """The names of the stages, in order."""
        return [stage.name for stage in self.stages]

    def to_dict(self) -> dict[str, Any]:
        """The same as in a file."""
        stages = {
            stage.name: ({} if stage.command == "train" else {"command": stage.command}) | stage.options
            for stage in self.stages
        }
        texts = {"about": self.about, "represents": self.represents, "leaves_out": self.leaves_out}
        told: dict[str, object] = {key: text for key, text in texts.items() if text}
        told |= {"papers": list(self.papers)} if self.papers else {}
        told |= {"sizes": self.sizes} if self.sizes else {}
        return {**told, "model": self.model, "task": self.task, "options": self.options, "stages": stages}

    def uses(self, stage: Stage) -> list[str]:
        """The earlier stages that a stage refers to."""
        return list(dict.fromkeys(references(stage.options, self.names())))

    def following(self, names: Iterable[str]) -> list[str]:
        """These stages and all that depend on them, in order."""
        reached = set(names)
        for stage in self.stages:
            if reached & set(self.uses(stage)):
                reached.add(stage.name)
        return [name for name in self.names() if name in reached]


def read_recipe(
    file: Path, changes: Mapping[str, object] | None = None, name: str | None = None, size: str | None = None
) -> Recipe:
    """The recipe of a YAML file; `changes` are those of `changed`, made to the settings of `size`."""
    if not file.is_file():
        raise ValueError(
            f"there is no file {str(file)!r} to read a recipe from; `burnish recipe` lists those in the box"
        )
    recipe = parse(read_yaml(file), str(file), name or file.stem)
    return changed(sized(recipe, size) if size else recipe, changes or {})


def sized(recipe: Recipe, size: str) -> Recipe:
    """The recipe with the settings of one of its sizes."""
    if size not in recipe.sizes:
        known = f"its sizes are {', '.join(recipe.sizes)}" if recipe.sizes else "it has none"
        raise ValueError(f"recipe {recipe.name} has no size {size!r}; {known}")
    settings, told = recipe.sizes[size], recipe.to_dict()
    del told["sizes"]
    told |= {key: settings[key] for key in WHOLE if key in settings}
    told["options"] = {**told["options"], **_plain(settings.get("options") or {})}
    for name, options in (settings.get("stages") or {}).items():
        if name not in told["stages"]:
            raise ValueError(f"recipe {recipe.name}: size {size!r} names {name!r}, which is no stage of it")
        if options is None:  # this size does without the stage
            del told["stages"][name]
            continue
        for option, value in _plain(options).items():
            _one_length(told["stages"][name], option)[option] = value
    return parse(told, f"recipe {recipe.name}", recipe.name)


def parse(stored: object, where: str, name: str) -> Recipe:
    """The recipe of a file's contents; ValueError names what is wrong."""
    if not isinstance(stored, dict) or not isinstance(stored.get("stages"), dict) or not stored["stages"]:
        raise ValueError(
            f"{where} is no recipe: it needs `stages:` with lines `NAME:` and the options of each below it"
        )
    for key in stored:
        if key not in KEYS:
            near = difflib.get_close_matches(str(key), KEYS, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else f"; a recipe has {', '.join(KEYS)}"
            raise ValueError(f"{where} has {key!r}, which a recipe does not know{hint}")
    shared = stored.get("options") or {}
    if not isinstance(shared, dict):
        raise ValueError(f"{where}: `options` should hold lines `option: value`, for all stages that have the option")
    recipe = Recipe(
        name,
        tuple(_stage(str(key), value, where) for key, value in stored["stages"].items()),
        str(stored.get("model", "tiny")),
        str(_plain({"task": stored.get("task", "add")})["task"]),
        _plain(shared),
        " ".join(str(stored.get("about", "")).split()),
        tuple(map(str, stored.get("papers") or ())),
        " ".join(str(stored.get("represents", "")).split()),
        " ".join(str(stored.get("leaves_out", "")).split()),
        dict(stored.get("sizes") or {}),
    )
    _check_order(recipe, where)
    return recipe


def changed(recipe: Recipe, changes: Mapping[str, object]) -> Recipe:
    """The recipe with other values: {"rl.steps": 50} of a stage, {"seed": 1} of all, and {"model": ...}, {"task": ...}.

    A model or task is that of the stages which name none.
    """
    told = recipe.to_dict()
    for key, value in changes.items():
        stage, dot, option = str(key).rpartition(".")
        option = option.replace("-", "_")
        if not dot and option in ("method", "command"):
            raise ValueError(f"recipe {recipe.name}: {key}={value} is for one stage; write STAGE.{key}={value}")
        if not dot:
            _of_all(told, option, value)
        elif stage in told["stages"]:
            _one_length(told["stages"][stage], option)[option] = value
        else:
            near = difflib.get_close_matches(stage, recipe.names(), 1, 0.4) or recipe.names()
            raise ValueError(
                f"recipe {recipe.name} has no stage {stage!r} for {key}={value}; did you mean {near[0]!r}?"
            )
    return parse(told, f"recipe {recipe.name}", recipe.name)


def _of_all(told: dict[str, Any], option: str, value: Any) -> None:
    """Change an option of all stages that have it, also of those that name a value of their own."""
    if option in WHOLE:  # that of a stage says what it learns from
        told[option] = value
        return
    told["options"] = {**_one_length(told["options"], option), option: value}
    for stage in told["stages"].values():
        own = stage.keys() & ({"steps", "epochs"} if option in ("steps", "epochs") else {option})
        if own:
            _one_length(stage, option)[option] = value


def references(options: Mapping[str, Any], names: list[str]) -> Iterator[str]:
    """The stages that options refer to: `model` and `task` by their bare name, every text by {name}."""
    for key, value in options.items():
        if key in WHOLE and value in names:
            yield str(value)
        elif isinstance(value, str):
            yield from (name for name in REFERENCE.findall(value) if name in names)


def filled(options: Mapping[str, object], products: Mapping[str, str]) -> dict[str, object]:
    """The options with what the stages made in place of their names."""

    def of(key: str, value: object) -> object:
        if key in WHOLE and isinstance(value, str) and value in products:
            return products[value]
        return REFERENCE.sub(lambda match: products.get(match[1], match[0]), value) if isinstance(value, str) else value

    return {key: of(key, value) for key, value in options.items()}


def _stage(name: str, stored: object, where: str) -> Stage:
    if not NAME.fullmatch(name) or name in GENERATED or name in MODELS:
        why = (
            "is a task or a model" if name in GENERATED or name in MODELS else "is no word of letters, digits, - and _"
        )
        raise ValueError(f"{where}: a stage cannot be called {name!r}, because this {why}; give it another name")
    if not isinstance(stored, dict) or ("method" in stored) == ("command" in stored):
        raise ValueError(
            f"{where}: stage {name!r} needs either `method: NAME` (a training run) or `command: NAME` (pairs, steps, "
            "eval, ...), and its options below it"
        )
    options = _plain(stored)
    command = str(options.pop("command", "train"))
    for key in ("out", "resume"):
        if key in options:
            raise ValueError(f"{where}: stage {name!r} has {key!r}, but each stage has its own folder in the recipe's")
    return Stage(name, command, options)


def _check_order(recipe: Recipe, where: str) -> None:
    """A stage uses what earlier stages made."""
    names = recipe.names()
    for i, stage in enumerate(recipe.stages):
        for used in recipe.uses(stage):
            if used not in names[:i]:
                raise ValueError(
                    f"{where}: stage {stage.name!r} uses {used!r}, which does not come before it; change the order"
                )


def _plain(options: Mapping[object, object]) -> dict[str, object]:
    """Options by their names in Python; lists and mappings (of tasks, rewards) as the text of the flag."""
    named = {str(key).replace("-", "_"): value for key, value in options.items()}
    return {
        key: SPELLED[key][1](value) if key in SPELLED and isinstance(value, SPELLED[key][0]) else value
        for key, value in named.items()
    }


def _one_length(options: dict[str, object], option: str) -> dict[str, object]:
    """The options without the other way to say how long a run is, if that is what changes."""
    for other in {"steps", "epochs"} - {option} if option in ("steps", "epochs") else ():
        options.pop(other, None)
    return options
