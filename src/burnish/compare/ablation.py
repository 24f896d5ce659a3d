"""A method against its parent, part by part: what it adds is switched off, what it changes goes back to the parent's, what it
leaves out is put in again. Each change is made alone, and the result is built anew, so what cannot be is refused in words.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

from burnish.learn.learn import Learn
from burnish.learn.term import Term
from burnish.method import Method, Phase
from burnish.methods.table import Entry, find
from burnish.parts import Part, Wired, chain
from burnish.run.config import method_fields
from burnish.tasks.source import Source

_SETTINGS = ("epochs", "minibatches", "temperature", "embed", "rest", "move")
_MUST_BE_READ = ("stream:", "member:", "score:", "pairs", "lists")
_CHAINS = ("score", "select", "credit")


@dataclass(frozen=True)
class Change:
    """One difference undone.

    kind   off: what the method adds is taken out; back: the parent's takes its place; again: what it left out is put in
    room   draw, rollout, score, select, credit, term, setting or cast;  name  the part's, as `burnish show` prints it
    other  the parent's part that comes in
    """

    kind: str
    room: str
    name: str
    other: str = ""

    def said(self, parent: str) -> str:
        """The change in words, for tables."""
        if self.kind == "off":
            return f"without {self.name}"
        if self.kind == "again":
            return f"with {parent}'s {self.other}"
        return f"{parent}'s {self.other} for {self.name}" if self.other != self.name else f"{self.name} as in {parent}"


def changes(mine: Method, base: Method) -> list[Change]:
    """Every difference between a method and its parent, to be undone one at a time."""
    found: list[Change] = []
    for room in ("draw", "rollout"):
        here, there = _names(mine, room), _names(base, room)
        found += [Change("back", room, name, there[0]) for name in here if name not in there]
    for room in _CHAINS:
        found += _chain_changes(mine, base, room)
    found += _term_changes(mine, base)
    for name in _SETTINGS:
        values = [getattr(phase.learn, name) for phase in mine.phases]
        if any(not same(value, getattr(base.phases[0].learn, name)) for value in values):
            found.append(Change("back", "setting", name, name))
    for name, role in mine.cast.items():
        if name in base.cast and not same(role, base.cast[name]):
            found.append(Change("back", "cast", name, name))
    return list(dict.fromkeys(found))


def _chain_changes(mine: Method, base: Method, room: str) -> list[Change]:
    here, there = _atoms(mine, room), _atoms(base, room)
    added = [atom for name, atom in here.items() if name not in there and not _of_a_term(atom)]
    missing = [atom for name, atom in there.items() if name not in here and not _of_a_term(atom)]
    found = []
    for atom in added:
        twin = next((other for other in missing if other.writes & atom.writes), None)
        if twin is not None:
            missing.remove(twin)
            found.append(Change("back", room, atom.name, twin.name))
        else:
            found.append(Change("off", room, atom.name))
    wanted = {name for phase in base.phases for term in phase.learn.terms for name in term.reads}
    alone = [atom for atom in missing if not atom.writes & wanted]  # what serves a term comes and goes with the term
    return found + [Change("again", room, "", atom.name) for atom in alone]


def _term_changes(mine: Method, base: Method) -> list[Change]:
    here, there = _terms(mine), _terms(base)
    found = [Change("off", "term", name) for name in here if name not in there]
    found += [
        Change("back", "term", name, name) for name in here if name in there and not same(here[name], there[name])
    ]
    return found + [Change("again", "term", "", name) for name in there if name not in here]


def applied(mine: Method, base: Method, change: Change) -> Method:
    """The method with one difference undone; ValueError where what is left does not work together."""
    if change.room == "cast":
        return replace(mine, cast={**mine.cast, change.name: base.cast[change.name]})
    cast = {**base.cast, **mine.cast} if change.kind != "off" else mine.cast
    phases = tuple(_phase(phase, base.phases[0], change) for phase in mine.phases)
    if all(new is old for new, old in zip(phases, mine.phases, strict=True)):
        raise ValueError(f"there is no {change.name or change.other!r} to change")
    return replace(mine, cast=_needed(cast, mine, phases), phases=phases)


def variant(method: str, parent: str, change: Change) -> Entry:
    """The changed method as a row like any other: the same signature, built on any task."""
    entry, above = find(method), find(parent)

    @functools.wraps(entry.build)
    def build(source: Source, **given: Any) -> Method:
        return applied(entry.build(source, **given), build_parent(above, source, given), change)

    return replace(entry, build=build)


def build_parent(entry: Entry, source: Source, given: dict[str, Any]) -> Method:
    """The parent on the same task, with the method's own models where it needs some; its parts are all that is used of it."""
    needed = {n: given.get(n, "tiny") for n, p in method_fields(entry).items() if p.default is p.empty}
    return entry.build(source, **needed)


def _phase(phase: Phase, base: Phase, change: Change) -> Phase:
    if change.room in ("draw", "rollout"):
        if getattr(phase, change.room).name != change.name:
            return phase
        return replace(phase, **{change.room: getattr(base, change.room)})
    if change.room == "setting":
        plan = _learn(phase.learn, phase.learn.terms, {change.name: getattr(base.learn, change.name)})
        return _pruned(replace(phase, learn=plan))
    if change.room == "term":
        return _term_phase(phase, base, change)
    atoms = list(getattr(phase, change.room))
    if change.kind == "again":
        theirs = list(getattr(base, change.room))
        new = [atom for atom in theirs if atom.name == change.other or atom.name in {a.name for a in atoms}]
        kept = [atom for atom in atoms if atom.name not in {a.name for a in theirs}]
        return _pruned(_chained(phase, change.room, [*new, *kept]))
    if change.name not in [atom.name for atom in atoms]:
        return phase
    twins = [atom for atom in getattr(base, change.room) if atom.name == change.other]
    new = [part for atom in atoms for part in (twins if atom.name == change.name else [atom])]
    return _pruned(_relinked(_chained(phase, change.room, new), base))


def _term_phase(phase: Phase, base: Phase, change: Change) -> Phase:
    theirs = {term.name: term for term in base.learn.terms}
    if change.kind == "again":
        terms = (*phase.learn.terms, theirs[change.other])
    elif change.name not in [term.name for term in phase.learn.terms]:
        return phase
    else:
        terms = tuple(
            new
            for term in phase.learn.terms
            for new in ([term] if term.name != change.name else [theirs[change.other]] if change.kind == "back" else [])
        )
    if not terms:
        raise ValueError("it is the method's only term: without it nothing is learned")
    return _pruned(_supplied(replace(phase, learn=_learn(phase.learn, terms, {})), base))


def _supplied(phase: Phase, base: Phase) -> Phase:
    """With the parent's credit parts that write what terms read and nobody writes."""
    have = {name for room in phase.rooms() for name in room.part.writes}
    wanted = {name for term in phase.learn.terms for name in term.reads if name.startswith(_MUST_BE_READ)} - have
    more = [atom for atom in base.credit if atom.writes & wanted]
    return replace(phase, credit=chain(*phase.credit, *more)) if more else phase


def _relinked(phase: Phase, base: Phase) -> Phase:
    """With the parent's part wherever one of the method's read what is gone, and the parent's writes the same without it."""
    have = set(phase.draw.writes | phase.rollout.writes)
    for room in _CHAINS:
        atoms: list[Part] = []
        for atom in getattr(phase, room):
            if _lacks(atom, have):
                twins = [
                    other for other in getattr(base, room) if other.writes & atom.writes and not _lacks(other, have)
                ]
                atom = twins[0] if twins else atom
            atoms.append(atom)
            have |= atom.writes
        phase = _chained(phase, room, atoms)
    return phase


def _lacks(atom: Part, have: set[str]) -> bool:
    return any(name not in have and not name.startswith(("cast:", "store:", "given:", "task:")) for name in atom.reads)


def _pruned(phase: Phase) -> Phase:
    """Without the parts that now write for nobody."""
    while True:
        read = set(phase.learn.reads).union(*(room.part.reads for room in phase.rooms()))
        read = read.union(*(term.reads for term in phase.learn.terms))
        idle = [
            (room.room, room.part.name)
            for room in phase.rooms()
            if room.room in _CHAINS and (mine := {w for w in room.part.writes if w.startswith(_MUST_BE_READ)}) and not mine & read
        ]  # fmt: skip
        if not idle:
            return phase
        where, name = idle[0]
        phase = _chained(phase, where, [atom for atom in getattr(phase, where) if atom.name != name])


def _needed(cast: dict[str, Any] | Any, mine: Method, phases: Sequence[Phase]) -> dict[str, Any]:
    """The method's own members, and those of the parent that its parts now call on."""
    read = {name for phase in phases for room in phase.rooms() for name in room.part.reads}
    read |= {name for phase in phases for term in phase.learn.terms for name in term.reads}
    called = {name.removeprefix("cast:").split(".")[0] for name in read if name.startswith("cast:")}
    return {name: role for name, role in cast.items() if name in mine.cast or name in called}


def _chained(phase: Phase, room: str, atoms: Sequence[Part]) -> Phase:
    return replace(phase, **{room: chain(*atoms)})  # type: ignore[arg-type]


def _learn(plan: Learn, terms: tuple[Term, ...], changed: dict[str, Any]) -> Learn:
    return Learn(*terms, **{**{name: getattr(plan, name) for name in _SETTINGS}, **changed})


def _names(method: Method, room: str) -> list[str]:
    return list(dict.fromkeys(getattr(phase, room).name for phase in method.phases))


def _atoms(method: Method, room: str) -> dict[str, Part]:
    return {atom.name: atom for phase in method.phases for atom in getattr(phase, room)}


def _terms(method: Method) -> dict[str, Term]:
    return {term.name: term for phase in method.phases for term in phase.learn.terms}


def _of_a_term(atom: Wired) -> bool:
    """Whether a part only says which tokens a term claims: it comes and goes with the term."""
    return bool(atom.writes) and all(name.startswith("member:") for name in atom.writes)


def same(a: Any, b: Any) -> bool:
    """Whether two parts are alike: functions by their code and what they hold, everything else by its fields."""
    if isinstance(a, FunctionType) and isinstance(b, FunctionType):
        return a.__code__ is b.__code__ and same(_held(a), _held(b)) and same(a.__defaults__, b.__defaults__)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if type(a) is type(b) and hasattr(a, "__dataclass_fields__"):
        return all(same(getattr(a, name), getattr(b, name)) for name in a.__dataclass_fields__)
    return bool(a == b)


def _held(function: Callable[..., Any]) -> list[Any]:
    """What a function remembers from where it was made."""
    return [cell.cell_contents for cell in function.__closure__ or ()]  # type: ignore[attr-defined]
