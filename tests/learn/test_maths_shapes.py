"""Each function of the loss maths takes and gives tensors of the shapes that its signature says."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

import burnish.learn.maths

SIZES = {"N": 5, "V": 7, "R": 3, "P": 4, "K": 6}


def functions() -> Iterator[Callable[..., object]]:
    for file in sorted(Path(burnish.learn.maths.__file__).parent.glob("[a-z]*.py")):
        module = importlib.import_module(f"burnish.learn.maths.{file.stem}")
        yield from (f for _, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == module.__name__)


def shape_of(hint: Any) -> tuple[int, ...]:
    names = hint.__metadata__[0]
    return (2, 3) if names == "*" else tuple(SIZES[name] for name in names.split())


def shaped(hint: Any) -> Any:
    """The annotated tensor in a parameter's type: itself, in a union, or in a sequence."""
    if get_origin(hint) is Annotated:
        return hint
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()
    return next((one for one in parts if get_origin(one) is Annotated), None)


def tensor(hint: Any) -> Tensor:
    x = torch.rand(shape_of(hint), generator=torch.Generator().manual_seed(0)) * 0.8 + 0.1
    return x > 0.5 if bool in hint.__metadata__ else x


def call(function: Callable[..., Any], numbers: bool) -> tuple[Any, Any]:
    """The result of a function and its declared type. numbers: a float is passed where a float or a tensor may be."""
    hints = get_type_hints(function, include_extras=True)
    given: dict[str, Any] = {}
    for name in inspect.signature(function).parameters:
        hint = hints[name]
        wanted = shaped(hint)
        assert wanted is not None or Tensor not in (hint, *get_args(hint)), f"{function.__name__}: {name} has no shape"
        if wanted is not None:
            given[name] = 0.5 if numbers and float in get_args(hint) else tensor(wanted)
        elif get_args(hint) and get_origin(get_args(hint)[0]) is Annotated:
            given[name] = [tensor(get_args(hint)[0])] * 2
        else:
            given[name] = 0.5
    return function(**given), hints["return"]


def test_results_have_the_shapes_that_signatures_say() -> None:
    checked = 0
    for function in functions():
        for numbers in (True, False):
            result, hint = call(function, numbers)
            if get_origin(hint) is not Annotated:
                assert hint == float | None and isinstance(result, float), function.__name__
                continue
            assert tuple(result.shape) == shape_of(hint), (function.__name__, tuple(result.shape), hint)
            checked += 1
    assert checked > 80
