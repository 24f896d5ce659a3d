"""What an attempt at a gradient leaves behind, taken back."""

from __future__ import annotations

from collections.abc import Callable

from burnish.core.step import Notes
from burnish.models.model import Model


def taken_back(model: Model, notes: Notes) -> Callable[[], None]:
    """A function that gives a model's gradients and the metrics the values that they have now."""
    before = [(p, None if p.grad is None else p.grad.clone()) for p in model.optimiser.moved.values()]
    notes_back = notes.kept()

    def undo() -> None:
        notes_back()
        for leaf, _ in model.working.leaves:
            leaf.grad = None
        if model.optimiser.states is not None:
            model.optimiser.states.forget()
        for p, grad in before:
            p.grad = None if grad is None else grad.clone()

    return undo
