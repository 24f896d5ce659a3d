"""Every number that a method is given is part of what it does: another number makes another composition."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from at_once import at_once
from conftest import arguments_for, task_for

from burnish.config.options import method_fields
from burnish.core.method import Method
from burnish.methods.table import METHODS

UNUSED = {  # in the trial, and why
    ("ma_rlhf", "repeats"): "only a random cut repeats its lengths",
    ("sapo_swarm", "recent"): "without a swarm there are no files",
    ("pairwise_grpo", "orders"): "without a judge no pair is shown to one",
}


def parts(thing: Any, seen: frozenset[int] = frozenset()) -> Iterator[Any]:
    """Everything that a composition holds, piece by piece: fields, members, and what functions remember."""
    if id(thing) in seen:
        return
    seen |= {id(thing)}
    if isinstance(thing, functools.partial):
        yield from parts((thing.func, thing.args, thing.keywords), seen)
    elif isinstance(thing, FunctionType):
        yield thing.__qualname__
        held = [cell.cell_contents for cell in thing.__closure__ or ()]
        yield from parts((held, thing.__defaults__, thing.__kwdefaults__), seen)
    elif isinstance(thing, dict):
        for key in thing:
            yield from parts((key, thing[key]), seen)
    elif isinstance(thing, (frozenset, set)):
        yield tuple(sorted(map(str, thing)))
    elif isinstance(thing, (tuple, list)):
        yield len(thing)
        for item in thing:
            yield from parts(item, seen)
    elif isinstance(thing, (int, float, str, bytes, bool, type(None))):
        yield thing
    elif inspect.isclass(thing) or inspect.isbuiltin(thing) or inspect.ismodule(thing):
        yield str(thing)
    elif inspect.ismethod(thing):
        yield from parts((thing.__func__, thing.__self__), seen)
    else:
        names = (
            [f.name for f in dataclasses.fields(thing)]
            if dataclasses.is_dataclass(thing)
            else sorted(vars(thing))
            if hasattr(thing, "__dict__")
            else []
        )
        yield type(thing).__name__
        for name in names:
            yield from parts((name, getattr(thing, name)), seen)


def others(value: Any) -> list[Any]:
    """Other values that the argument might take, the first that is allowed is tried."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value + 2, value - 1]
    if isinstance(value, float):
        return [value * 0.75, value * 1.25, value + 0.125, 0.5]
    return []


def other(name: str, given: dict[str, Any], key: str, value: Any) -> Method | None:
    """The method with another number; None where every other one is refused."""
    for choice in others(value):
        if choice != value:
            try:
                return METHODS[name].build(task_for(name), **{**given, key: choice})
            except ValueError:
                continue
    return None


@at_once("name", sorted(METHODS))
def test_another_number_is_another_method(name: str, other_model: Path) -> None:
    given = arguments_for(name, other_model)
    base = list(parts(METHODS[name].build(task_for(name), **given)))
    assert base == list(parts(METHODS[name].build(task_for(name), **given))), (
        "two methods that are built alike are alike"
    )
    values = {key: given.get(key, p.default) for key, p in method_fields(METHODS[name]).items()}
    same = []
    for key, value in values.items():
        changed = other(name, given, key, value)
        if changed is not None and list(parts(changed)) == base:
            same.append(key)
    assert same == [key for method, key in UNUSED if method == name]
