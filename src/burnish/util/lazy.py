"""Packages that import their modules when a name is used, not when the package is imported.

    if TYPE_CHECKING:
        from burnish.draw.tasks import prompts as prompts
    else:
        __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)

The block for the type checker is the one list of public names, and this module reads it. Importing all stages takes
0.8 s of processor time; a command, a worker and a test pay for the parts that they use.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType

_PACKAGES: list[str] = []


def lazy_names(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package whose names stand below `if TYPE_CHECKING`."""
    homes: dict[str, tuple[str, str]] = {}
    with open(file, encoding="utf-8") as opened:
        tree = ast.parse(opened.read())
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                if isinstance(line, ast.ImportFrom) and line.module:
                    homes |= {alias.asname or alias.name: (line.module, alias.name) for alias in line.names}

    class LazyPackage(ModuleType):
        """Python sets a submodule as an attribute of its package; a public name of the same spelling stays itself."""

        def __setattr__(self, name: str, value: object) -> None:
            if name in homes and isinstance(value, ModuleType):
                value = getattr(import_module(homes[name][0]), homes[name][1])
            super().__setattr__(name, value)

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, own = homes[name]
        value = getattr(import_module(module), own)
        setattr(sys.modules[package], name, value)
        return value

    sys.modules[package].__class__ = LazyPackage
    _PACKAGES.append(package)
    return get, lambda: sorted({*homes, *vars(sys.modules[package])}), sorted(homes)


def load_lazy_packages() -> None:
    """Import everything that lazy packages name: for error messages that recommend parts."""
    for package in _PACKAGES:
        for name in sys.modules[package].__all__:
            getattr(sys.modules[package], name)
