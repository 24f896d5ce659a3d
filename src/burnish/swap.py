"""Take a method and put another part in the place of one of its own: in Python, or as words on the command line.

    swap(grpo(task), group_relative=leave_one_out())
    burnish train grpo --swap "group_relative=leave_one_out()"
    burnish train grpo --swap "pg=pg_clip(0.2, 0.28)"

What is replaced goes by its name as `burnish show` prints it, up to the bracket; a term by the term's name. The result is
built anew, so what does not fit is refused in words.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from burnish.learn.learn import Learn
from burnish.learn.term import Term
from burnish.method import Method, Phase
from burnish.parts import Draw, Part, Rollout, Wired, chain

New = Wired | Term
_ROOMS = ("draw", "rollout", "score", "select", "credit", "learn.terms")


def swap(method: Method, **parts: New) -> Method:
    """The method with each named part or term replaced, wherever it stands."""
    for name, new in parts.items():
        before = method
        method = replace(method, phases=tuple(_in_phase(phase, name, new) for phase in method.phases))
        if method.phases == before.phases:
            there = ", ".join(dict.fromkeys(n for phase in method.phases for n in _names(phase)))
            raise ValueError(f"{method.name} has no part or term called {name!r} to replace; it has {there}")
    return method


def swapped(method: Method, words: str) -> Method:
    """The same from words: "name=part(arguments); name=part(arguments)"."""
    for piece in filter(None, (piece.strip() for piece in words.split(";"))):
        name, _, call = piece.partition("=")
        if not call:
            raise ValueError(f"--swap {piece!r} says nothing to put in; write name=part(arguments)")
        method = swap(method, **{name.strip(): part_from(call.strip())})
    return method


def part_from(call: str) -> New:
    """A part from words such as "leave_one_out()" or "pg_clip(0.2, eps_high=0.28)": literals only, nothing is evaluated."""
    try:
        tree = ast.parse(call if call.endswith(")") else f"{call}()", mode="eval").body
    except SyntaxError:
        tree = None
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise ValueError(f"{call!r} is not a part; write its name and its arguments, for example pg_clip(0.2)")
    known = factories()
    if tree.func.id not in known:
        near = difflib.get_close_matches(tree.func.id, known, 3, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "docs/methods lists the parts of every method"
        raise ValueError(f"there is no part {tree.func.id!r}; {hint}")
    try:
        positional = [ast.literal_eval(value) for value in tree.args]
        named = {item.arg: ast.literal_eval(item.value) for item in tree.keywords if item.arg}
        inspect.signature(known[tree.func.id]).bind(*positional, **named)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{call!r}: {error}; its arguments are {inspect.signature(known[tree.func.id])}") from None
    return known[tree.func.id](*positional, **named)


@cache
def factories() -> dict[str, Callable[..., Any]]:
    """Every public function of the rooms that makes a part or a term, by name."""
    found: dict[str, Callable[..., Any]] = {}
    for room in _ROOMS:
        package = importlib.import_module(f"burnish.{room}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, function in inspect.getmembers(importlib.import_module(module.name), inspect.isfunction):
                made = inspect.signature(function).return_annotation
                if not name.startswith("_") and made in ("Part", "Term", "Rollout", "Draw"):
                    found.setdefault(name, function)
    return found


def _in_phase(phase: Phase, name: str, new: New) -> Phase:
    changed: dict[str, Any] = {}
    if isinstance(new, Term):
        terms = tuple(replace(new, name=name) if term.name == name else term for term in phase.learn.terms)
        return phase if terms == phase.learn.terms else replace(phase, learn=_with_terms(phase.learn, terms))
    for room, kind in (("draw", Draw), ("rollout", Rollout)):
        if isinstance(new, kind) and _short(getattr(phase, room)) == name:
            changed[room] = new
    for room in ("score", "select", "credit"):
        atoms = list(getattr(phase, room))
        if isinstance(new, Part) and any(_short(atom) == name for atom in atoms):
            changed[room] = chain(*(new if _short(atom) == name else atom for atom in atoms))
    return replace(phase, **changed) if changed else phase


def _with_terms(plan: Learn, terms: tuple[Term, ...]) -> Learn:
    kept = {k: getattr(plan, k) for k in ("epochs", "minibatches", "temperature", "embed", "rest", "move")}
    return Learn(*terms, **kept)


def _short(part: Wired) -> str:
    return part.name.partition("(")[0]


def _names(phase: Phase) -> list[str]:
    return [_short(room.part) for room in phase.rooms()] + [term.name for term in phase.learn.terms]
