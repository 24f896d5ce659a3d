"""What there is: methods, tasks and models by name."""

from __future__ import annotations

from html import escape

from burnish.methods.table import METHODS, load_all
from burnish.models.known_models import MODELS
from burnish.tasks.table import GENERATED


class Listing(dict[str, str]):
    """Names and what they stand for; a notebook shows them as a table."""

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:<{width}}  {what}" for name, what in self.items())

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(what)}</td></tr>" for name, what in self.items())
        return f"<table><tr><th>name</th><th>what</th></tr>{rows}</table>"


def list_methods(family: str | None = None) -> Listing:
    """The methods of `train`, or those of a family: list_methods("preference")."""
    load_all()
    families = sorted({entry.family for entry in METHODS.values()})
    if family is not None and family not in families:
        raise ValueError(f"there is no family {family!r}; the families are {', '.join(families)}")
    return Listing({name: e.summary for name, e in METHODS.items() if family is None or e.family == family})


def list_tasks() -> Listing:
    """The built-in tasks."""
    return Listing({name: str(kind.__dict__["summary"]) for name, kind in GENERATED.items()})


def list_models() -> Listing:
    """The models that burnish knows by name."""
    return Listing({name: model.summary for name, model in MODELS.items()})
