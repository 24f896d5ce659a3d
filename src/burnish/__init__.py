"""burnish post-trains language models: one loop, seven stages, and a method is a short composition of small parts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from burnish.util.mkl import make_mkl_reproducible

__version__ = "0.1.0"
_PUBLIC = {  # name -> the module that has it; imported when it is asked for, so that `import burnish` needs no torch
    "train": "api.train",
    "resume": "api.train",
    "TrainResult": "api.result",
    "recipe": "commands.recipe",
    "evaluate": "api.inference",
    "generate": "api.inference",
    "list_methods": "api.listing",
    "list_tasks": "api.listing",
    "list_models": "api.listing",
    "Observer": "run.observers",
    "open_store": "store.reader",
}
__all__ = [
    "Observer",
    "TrainResult",
    "evaluate",
    "generate",
    "list_methods",
    "list_models",
    "list_tasks",
    "open_store",
    "recipe",
    "resume",
    "train",
]

if TYPE_CHECKING:
    from burnish.api.inference import evaluate, generate
    from burnish.api.listing import list_methods, list_models, list_tasks
    from burnish.api.result import TrainResult
    from burnish.api.train import resume, train
    from burnish.commands.recipe import recipe
    from burnish.run.observers import Observer
    from burnish.store.reader import open_store

make_mkl_reproducible()


def __getattr__(name: str) -> Any:
    """`burnish.train` without paying for torch when only the version or the tasks are wanted."""
    if name in _PUBLIC:
        return getattr(import_module(f"burnish.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module 'burnish' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
