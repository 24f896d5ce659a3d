"""Functions and classes of the user: rewards, tools, environments. `path/to/file.py:name`, `package.module:name`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from burnish.util.failures import said

RewardFunction = Callable[..., object]


def _module(place: str, spec: str, what: str) -> ModuleType:
    """The module at a path that ends in .py, or of a dotted name."""
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except KeyboardInterrupt:
            raise  # Ctrl-C
        except BaseException as error:
            raise ValueError(
                f"{what} {spec!r}: importing {place!r} failed ({type(error).__name__}: {said(error)}); "
                "check the name, or write path/to/file.py:function"
            ) from error
    path = Path(os.path.expanduser(place)).resolve()  # Path.expanduser raises for an unknown ~NAME
    if not path.is_file():
        raise ValueError(f"{what} {spec!r}: no file {place!r}; check the path (it is looked up from {Path.cwd()})")
    name = f"burnish_reward_{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None and module_spec.loader is not None, path
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module  # dataclasses look up their own module there
    try:
        module_spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise  # Ctrl-C
    except BaseException as error:  # a file that calls sys.exit must not end the run silently
        del sys.modules[name]
        raise ValueError(
            f"{what} {spec!r}: running {place} failed ({type(error).__name__}: {said(error)}); fix it"
        ) from error
    return module


def load_function(spec: str, what: str = "reward") -> RewardFunction:
    """The function or class of `path/to/file.py:name` or `package.module:name`. what: what it is to be, for errors."""
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not name:
        raise ValueError(
            f"{what} {spec!r} names no function; write path/to/file.py:function or package.module:function"
        )
    module = _module(place, spec, what)
    function: object = vars(module).get(name)
    if not callable(function):
        wanted = inspect.isclass if what == "environment" else inspect.isfunction
        here = [n for n, v in vars(module).items() if wanted(v) and v.__module__ == module.__name__]
        raise ValueError(f"{what} {spec!r}: {place} has no function {name!r}; it has {', '.join(here) or 'none'}")
    return function
