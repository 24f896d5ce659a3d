"""A paper: where a method, a reward, a task or a system was published."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Paper:
    """Its id in the catalogue of methods, its arXiv number (empty if it has none) and its title."""

    id: str
    arxiv: str
    title: str
