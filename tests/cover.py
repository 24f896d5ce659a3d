"""Which methods the laws run on by default: the library, and of the rest as few as have every kind of term.

A method that only combines terms, norms and streams which others have, too, is tested when its own file has changed
(tests/guards.py), and by `make test-all`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import build_method
from guards import guards

from burnish.methods.index import INDEX
from burnish.methods.table import METHODS


@cache
def kinds_of(name: str) -> frozenset[Hashable]:
    """What the laws of the gradient can tell apart in a method: its terms, and how each is averaged and masked."""
    method = build_method(name, Path("teacher"))
    terms = [term for phase in method.phases for term in phase.learn.terms]
    kinds: set[Hashable] = {("phases", len(method.phases))}
    for term in terms:
        kinds |= {("term", term.name, term.unit), ("norm", getattr(term.norm, "name", str(term.norm)))}
        kinds |= {("authors", term.authors), ("streams", frozenset(term.streams)), ("live", frozenset(term.live))}
    return frozenset(kinds)


@cache
def cover() -> frozenset[str]:
    """The library, and then greedily the method with most kinds that none before it has."""
    chosen = [name for name, entry in METHODS.items() if entry.library]
    left = set().union(*(kinds_of(name) for name in METHODS)) - set().union(*(kinds_of(name) for name in chosen))
    while left:
        best = max(sorted(METHODS), key=lambda name: len(kinds_of(name) & left))
        chosen.append(best)
        left -= kinds_of(best)
    return frozenset(chosen)


def by_cover(names: Iterable[str] = METHODS) -> list[Any]:
    """Methods as parameters; those outside the cover run when their file has changed."""
    return [name if name in cover() else pytest.param(name, marks=guards(file_of(name))) for name in sorted(names)]


def file_of(name: str) -> str:
    """The file of a method below src/burnish."""
    return INDEX[name].removeprefix("burnish.").replace(".", "/") + ".py"


@cache
def first_of_each_unit() -> frozenset[str]:
    """For each unit of terms (token, sequence, pair, list, group) one method of the cover."""
    first: dict[Hashable, str] = {}
    for name in sorted(cover()):
        for kind in kinds_of(name):
            if isinstance(kind, tuple) and kind[0] == "term":
                first.setdefault(kind[2], name)
    return frozenset(first.values())
