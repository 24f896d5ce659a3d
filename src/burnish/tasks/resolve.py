"""Resolution of a task name (or object) into a source."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

from burnish.envs.process import Remote
from burnish.reward_functions.load import load_function
from burnish.reward_functions.resolve import IN_PYTHON, RewardSpec, make_reward, read_rewards
from burnish.tasks.adapters import adapted
from burnish.tasks.data.columns import read_mapping
from burnish.tasks.data.dataset import Dataset
from burnish.tasks.data.files import HUB_NAME
from burnish.tasks.data.spec import Spec, read_spec
from burnish.tasks.environment import EnvSource
from burnish.tasks.flipped import flipped
from burnish.tasks.mixture import Ingredient, Mixture
from burnish.tasks.rewritten import OPTIONS, rewritten
from burnish.tasks.source import Source
from burnish.tasks.table import GENERATED, closest, source
from burnish.tasks.task_set import leaves, limited, rewarded, sandboxed, task_set
from burnish.util.failures import said
from burnish.util.paths import expanded

INSTALLED = "burnish.tasks"  # the group of entry points


class UnknownTask(ValueError):
    """A name that is no task."""


ENVIRONMENT = re.compile(r".+\.py:[A-Za-z_]\w*")  # path/to/file.py:Env


def resolve_task(
    task: str | Source,
    reward: str | Sequence[RewardSpec] | None = None,
    *,
    columns: str | Mapping[str, str] | None = None,
    seconds: float | None = None,
    drop_failed: bool = False,
    workers: int = 0,
    env_process: bool = True,
) -> Source:
    """The source of a task: a built-in ("sort:3"), "gym:NAME" and the like (tasks/adapters.py), a file, folder or hub
    dataset, or the user's own object.

    Options follow after commas: "gym:chain_sum,max_terms=2" for a generator, "data.jsonl,prompt=text" to name a column,
    "pairs.jsonl,flip=0.2" to reverse a share of the labels, "add,skill=0.4" for a teacher who errs.
    Several sources make a mixture: "a.jsonl*0.7,b.jsonl*0.3".
    columns  part of a task -> column, for all datasets of the task
    reward   one function or several: path/to/file.py:function, "a.py:f,b.py:g*0.5", or what resolve_reward read
    seconds  time limit of a call of the reward function (by default 60), or of the verifier per reply (by default 10)
    workers  concurrent calls of the reward function during sampling
    env_process  an environment of a file runs in processes of its own
    """
    resolved = _named(task, read_mapping(columns), env_process) if isinstance(task, str) else task
    if reward:
        parts = read_rewards(reward) if isinstance(reward, str) else reward
        return rewarded(resolved, make_reward(parts, seconds), drop_failed=drop_failed, workers=workers)
    return _limited(resolved, seconds, drop_failed)


def _limited(source: Source, seconds: float | None, drop_failed: bool) -> Source:
    """The source with another time limit for its verifier, or that of each source of a mixture."""
    if isinstance(source, Mixture):
        parts = [replace(one, source=_limited(one.source, seconds, drop_failed)) for one in source.ingredients]
        return Mixture(source.name, parts)
    if seconds is not None:
        return limited(source, seconds, drop_failed=drop_failed)
    return limited(source, drop_failed=True) if drop_failed and sandboxed(source) is not None else source


def datasets_of(source: Source) -> list[Dataset]:
    """The datasets from which a source takes its tasks."""
    return [leaf for leaf in leaves(source) if isinstance(leaf, Dataset)]


def environments_of(source: Source) -> list[EnvSource]:
    """The environments of the user, or of another library, from which a source takes its tasks."""
    return [leaf for leaf in leaves(source) if isinstance(leaf, EnvSource)]


def mixture_of(source: Source) -> Mixture | None:
    """The mixture behind a source, if it is one."""
    inner = task_set(source).source
    return inner if isinstance(inner, Mixture) else None


def pin(name: str) -> str:
    """The same task with the commits of its hub datasets: a resumed run must not read rows that came later."""
    if name.startswith(IN_PYTHON):
        return name
    for spec in read_spec(name):
        hub = None if expanded(spec.name).exists() else HUB_NAME.fullmatch(spec.name)
        if hub and not _is_generated(spec.name) and not ENVIRONMENT.fullmatch(spec.name):
            from burnish.tasks.data.hub import pinned

            base, revision, config = hub.groups()
            commit = pinned(base, revision)
            if commit:
                name = name.replace(spec.name, f"{base}@{commit}" + (f":{config}" if config else ""), 1)
    return name


def _named(name: str, columns: Mapping[str, str], apart: bool) -> Source:
    if name.startswith(IN_PYTHON):
        raise ValueError(
            f"the task {name.removeprefix(IN_PYTHON)!r} was passed as a Python object, which no file can hold; "
            "pass it again: burnish.resume(folder, task=...)"
        )
    specs = read_spec(name) if name.strip() else []
    if not specs:
        raise ValueError(
            f"the task is {name!r}, which names nothing; write a built-in task or a file: --task data.jsonl"
        )
    if len(specs) == 1:
        return _one(specs[0], columns, apart)
    try:
        return Mixture(name, [Ingredient(_one(spec, columns, apart), spec.name, spec.weight) for spec in specs])
    except UnknownTask as error:
        raise ValueError(f"{error}; in {name!r} each comma begins another task, or an option key=value") from None


def _is_generated(name: str) -> bool:
    return adapted(name) is not None or name.partition(":")[0] in GENERATED


def _environment(name: str) -> Callable[..., object] | None:
    """The environment class that a name says: path/to/file.py:Env, package.module:Env, or an entry point
    `burnish.tasks`; None where it is none of them."""
    if ENVIRONMENT.fullmatch(name):
        return load_function(name, "environment")
    for point in entry_points(group=INSTALLED, name=name):
        try:
            found: Callable[..., object] = point.load()
        except Exception as error:
            raise ValueError(
                f"task {name!r} is offered by an installed package as {point.value}, which cannot be loaded "
                f"({type(error).__name__}: {said(error)}); correct the package, or remove it"
            ) from error
        return found
    return None


def installed() -> dict[str, str]:
    """The tasks that installed packages offer by the entry point `burnish.tasks`, by name, and what each loads."""
    return {point.name: point.value for point in entry_points(group=INSTALLED)}


def _one(spec: Spec, columns: Mapping[str, str], apart: bool) -> Source:
    if "flip" in spec.options:
        rest = {name: value for name, value in spec.options.items() if name != "flip"}
        return flipped(_one(replace(spec, options=rest), columns, apart), spec.options["flip"])
    if own := {name: spec.options[name] for name in OPTIONS if name in spec.options}:
        rest = {name: value for name, value in spec.options.items() if name not in own}
        return rewritten(_one(replace(spec, options=rest), columns, apart), own)
    name, options = spec.name, dict(spec.options)
    if (adapter := adapted(name)) is not None:
        return adapter[0](adapter[1], **options)
    if name.partition(":")[0] in GENERATED:
        return source(name, **options)
    if apart and ENVIRONMENT.fullmatch(name):
        return EnvSource(Remote(name, **options), name.rpartition(":")[2])
    if (factory := _environment(name)) is not None:
        return EnvSource(factory, name.rpartition(":")[2], **options)
    if Path(name).exists() or "/" in name or Path(name).suffix:
        own = {key: options.pop(key) for key in ("split", "heldout", "canary", "unsafe_code") if key in options}
        return Dataset(name, columns={**columns, **read_mapping(options)}, **own)
    names = [*GENERATED, *installed()]
    near = closest(name, names)
    hint = f"did you mean {' or '.join(near)}?" if near else f"the built-in ones are {', '.join(names)}."
    raise UnknownTask(
        f"there is no task {name!r}: {hint} A dataset is a path or a hub name with a slash, your own environment is "
        "file.py:Class, reasoning_gym is gym:NAME, and there are gymnasium:, textarena:, openenv: and verifiers:"
    )
