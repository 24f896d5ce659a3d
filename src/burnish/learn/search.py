"""Weights that move by scores alone: what takes the place of terms in `Learn(search=...)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from burnish.core.step import Step
from burnish.core.types import Group


@dataclass(frozen=True)
class Search:
    """A rule that moves weights without terms and without gradients.

    trainees  the models whose weights it moves
    reads     the names that it reads of the groups
    call      moves the weights, given all groups of a pass
    needs_lora  why the run needs LoRA adapters, with the fix; empty: it does not
    """

    name: str
    trainees: tuple[str, ...]
    reads: frozenset[str]
    call: Callable[[list[Group], Step], None]
    needs_lora: str = ""
