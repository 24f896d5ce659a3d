"""burnish post-trains language models: one loop, seven rooms, and a method is a short composition of small parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from burnish.repeatable import settle_products

__version__ = "0.1.0"
__all__ = ["resume", "train"]

if TYPE_CHECKING:
    from burnish.run.train import resume, train

settle_products()


def __getattr__(name: str) -> Any:
    """`burnish.train` without paying for torch when only the version or the tasks are wanted."""
    if name in __all__:
        from burnish.run import train as module

        return getattr(module, name)
    raise AttributeError(f"module 'burnish' has no attribute {name!r}")
