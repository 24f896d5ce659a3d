"""Take a method and put another part in the place of one of its own: in Python, or as words on the command line.

    swap(grpo(task), group_relative=leave_one_out())
    burnish train grpo --swap "group_relative=leave_one_out()"
    burnish train grpo --swap "pg=pg_clip(0.2, 0.28)"
    burnish train grpo --swap "pg=pg_clip(0.2, norm=constant)"

A part has the name that `burnish show` prints, up to the bracket; a term has its own name. The method is built again,
so a part that does not fit is refused with a message.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.method import Method, Phase
from burnish.core.parts import Draw, Part, Rollout, Wired, chain
from burnish.learn.learn import plan_of
from burnish.learn.norms import constant, group_mean, seq_mean, seq_sum_mean, token_mean, unit_mean
from burnish.learn.term import Term
from burnish.methods.table import load_all

New = Wired | Term
STAGES = ("draw", "rollout", "score", "select", "credit", "learn")
PARTS = ("Part", "Term", "Rollout", "Draw")  # what a factory may return
NORMS = {
    "unit_mean": unit_mean,
    "token_mean": token_mean,
    "seq_mean": seq_mean,
    "seq_sum_mean": seq_sum_mean,
    "group_mean": group_mean,
}


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
    """A part from words such as "leave_one_out()" or "pg_clip(0.2, norm=token_mean)".

    Arguments are literals and norms.
    """
    try:
        tree = ast.parse(call if call.endswith(")") else f"{call}()", mode="eval").body
    except SyntaxError:
        tree = None
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise ValueError(f"{call!r} is not a part; write its name and its arguments, for example pg_clip(0.2)")
    known = factories()
    if tree.func.id not in known:
        known = known | parts_of_one_method()
    if tree.func.id not in known:
        near = difflib.get_close_matches(tree.func.id, known, 3, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "docs/methods lists the parts of every method"
        raise ValueError(f"there is no part {tree.func.id!r}; {hint}")
    try:
        positional = [_argument(value) for value in tree.args]
        named = {item.arg: _argument(item.value) for item in tree.keywords if item.arg}
        inspect.signature(known[tree.func.id]).bind(*positional, **named)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{call!r}: {error}; its arguments are {inspect.signature(known[tree.func.id])}") from None
    part: Wired | Term = known[tree.func.id](*positional, **named)
    return part


def _argument(value: ast.expr) -> Any:
    """A literal, or the name of a norm: token_mean, seq_mean, constant, constant(512)."""
    if isinstance(value, ast.Name) and value.id in NORMS:
        return NORMS[value.id]
    if isinstance(value, ast.Name) and value.id == "constant":
        return constant()
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "constant":
        return constant(*(int(ast.literal_eval(one)) for one in value.args))
    return ast.literal_eval(value)


@cache
def factories() -> dict[str, Callable[..., Any]]:
    """Every public function of the stages that makes a part or a term, by name."""
    by_name: dict[str, Callable[..., Any]] = {}
    for stage in (draw, rollout, score, select, credit, learn):
        for name in stage.__all__:
            function = getattr(stage, name)
            if inspect.isfunction(function) and inspect.signature(function).return_annotation in PARTS:
                by_name.setdefault(name, function)
    return by_name


@cache
def parts_of_one_method() -> dict[str, Callable[..., Any]]:
    """The same of parts that one method or one paper alone has; their modules are imported for it.

    Where the method has the name, the part is called `exo_term` or `above_part`, and is found as `exo`, too.
    """
    load_all()
    for stage in (draw, rollout, score, select, credit, learn):
        for module in walk_packages(stage.__path__, f"{stage.__name__}."):
            import_module(module.name)
    places = tuple(f"burnish.{name}." for name in (*STAGES, "methods", "zoo"))
    parts: dict[str, Callable[..., Any]] = {}
    for module_name in sorted(name for name in sys.modules if name.startswith(places)):
        for name, function in vars(sys.modules[module_name]).items():
            own = inspect.isfunction(function) and function.__module__ == module_name and not name.startswith("_")
            if own and inspect.signature(function).return_annotation in PARTS:
                parts.setdefault(name, function)
                parts.setdefault(name.removesuffix("_term").removesuffix("_part"), function)
    return parts


def _in_phase(phase: Phase, name: str, new: New) -> Phase:
    changed: dict[str, Any] = {}
    if isinstance(new, Term):
        terms = tuple(_renamed(new, term) if term.name == name else term for term in plan_of(phase).terms)
        return phase if terms == plan_of(phase).terms else replace(phase, learn=plan_of(phase).with_terms(*terms))
    for stage, kind in (("draw", Draw), ("rollout", Rollout)):
        if isinstance(new, kind) and _short(getattr(phase, stage)) == name:
            changed[stage] = new
    for stage in ("score", "select", "credit"):
        atoms = list(getattr(phase, stage))
        if isinstance(new, Part) and any(_short(atom) == name for atom in atoms):
            changed[stage] = chain(*(new if _short(atom) == name else atom for atom in atoms))
    return replace(phase, **changed) if changed else phase


def _renamed(new: Term, old: Term) -> Term:
    """The new term in the old one's place: its name, and its authors where the new one names none of its own."""
    return replace(new, name=old.name, on=old.on if new.on == "policy" else new.on)


def _short(part: Wired) -> str:
    return part.name.partition("(")[0]


def _names(phase: Phase) -> list[str]:
    return [_short(placed.part) for placed in phase.parts()] + [term.name for term in plan_of(phase).terms]
