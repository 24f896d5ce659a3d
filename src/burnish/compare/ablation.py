"""Ablation: the differences between a method and its parent, each reverted alone.

A part that the method adds is disabled, a part that it changes is restored, and a part that it leaves out is put back.
Each variant is built like any method, so an impossible composition raises a ValueError with the reason.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType

from burnish.compose.unread import CHAINS, without_unread_parts
from burnish.config.options import method_fields
from burnish.core.method import MUST_BE_READ, Method, Phase
from burnish.core.parts import Part, Wired, chain, tokens_read
from burnish.core.roles import Role
from burnish.learn.learn import Learn, plan_of
from burnish.learn.term import Term
from burnish.methods.table import Entry, find
from burnish.tasks.source import Source

_SETTINGS = ("updates", "minibatches", "logp_temperature", "embed", "rest", "move", "search", "learners")


@dataclass(frozen=True)
class Change:
    """One reverted difference.

    kind   off: disable a part that the method adds; back: restore the parent's part; again: put a left-out part back
    stage  draw, rollout, score, select, credit, term, setting or models
    name   the method's part, as `burnish show` prints it
    other  the parent's part that replaces it or is put back
    """

    kind: str
    stage: str
    name: str
    other: str = ""

    def label(self, parent: str) -> str:
        """The change in words, for tables."""
        if self.kind == "off":
            return f"without {self.name}"
        if self.kind == "again":
            return f"with {parent}'s {self.other}"
        return f"{parent}'s {self.other} for {self.name}" if self.other != self.name else f"{self.name} as in {parent}"


def changes(method: Method, base: Method) -> list[Change]:
    """Every difference between a method and its parent, to be reverted one at a time."""
    differences: list[Change] = []
    for stage in ("draw", "rollout"):
        names, base_names = _names(method, stage), _names(base, stage)
        differences += [Change("back", stage, name, base_names[0]) for name in names if name not in base_names]
    for stage in CHAINS:
        differences += _chain_changes(method, base, stage)
    differences += _term_changes(method, base)
    for name in _SETTINGS:
        values = [getattr(phase.learn, name) for phase in method.phases]
        if any(not same(value, getattr(base.phases[0].learn, name)) for value in values):
            differences.append(Change("back", "setting", name, name))
    for name, role in method.models.items():
        if name in base.models and not same(role, base.models[name]):
            differences.append(Change("back", "models", name, name))
    return list(dict.fromkeys(differences))


def _chain_changes(method: Method, base: Method, stage: str) -> list[Change]:
    atoms, base_atoms = _atoms(method, stage), _atoms(base, stage)
    added = [atom for name, atom in atoms.items() if name not in base_atoms and not _of_a_term(atom)]
    missing = [atom for name, atom in base_atoms.items() if name not in atoms and not _of_a_term(atom)]
    differences = []
    for atom in added:
        twin = next((other for other in missing if other.writes & atom.writes), None)
        if twin is not None:
            missing.remove(twin)
            differences.append(Change("back", stage, atom.name, twin.name))
        else:
            differences.append(Change("off", stage, atom.name))
    term_reads = {name for phase in base.phases for term in plan_of(phase).terms for name in term.reads}
    independent = [atom for atom in missing if not atom.writes & term_reads]  # the others are added with their term
    return differences + [Change("again", stage, "", atom.name) for atom in independent]


def _term_changes(method: Method, base: Method) -> list[Change]:
    terms, base_terms = _terms(method), _terms(base)
    differences = [Change("off", "term", name) for name in terms if name not in base_terms]
    changed = [name for name in terms if name in base_terms and not same(terms[name], base_terms[name])]
    differences += [Change("back", "term", name, name) for name in changed]
    return differences + [Change("again", "term", "", name) for name in base_terms if name not in terms]


def applied(method: Method, base: Method, change: Change) -> Method:
    """The method with one difference reverted; raises ValueError if the remaining parts do not fit together."""
    if change.stage == "models":
        return replace(method, models={**method.models, change.name: base.models[change.name]})
    models = {**base.models, **method.models} if change.kind != "off" else method.models
    phases = tuple(_phase(phase, base.phases[0], change) for phase in method.phases)
    if all(new is old for new, old in zip(phases, method.phases, strict=True)):
        raise ValueError(f"there is no {change.name or change.other!r} to change")
    return replace(method, models=_needed(models, method, phases), phases=phases)


def variant(method: str, parent: str, change: Change) -> Entry:
    """The changed method as an entry of the method table, with the same signature."""
    entry, parent_entry = find(method), find(parent)

    @functools.wraps(entry.build)
    def build(source: Source, **given: object) -> Method:
        return applied(entry.build(source, **given), build_parent(parent_entry, source, given), change)

    return replace(entry, build=build)


def build_parent(entry: Entry, source: Source, given: dict[str, object]) -> Method:
    """Build the parent on the same task; options without a default take the method's value. Only its parts are used."""
    needed = {n: given.get(n, "tiny") for n, p in method_fields(entry).items() if p.default is p.empty}
    return entry.build(source, **needed)


def _phase(phase: Phase, base: Phase, change: Change) -> Phase:
    if change.stage in ("draw", "rollout"):
        if getattr(phase, change.stage).name != change.name:
            return phase
        return replace(phase, **{change.stage: getattr(base, change.stage)})
    if change.stage == "setting":
        plan = _learn(plan_of(phase), plan_of(phase).terms, {change.name: getattr(base.learn, change.name)})
        return without_unread_parts(replace(phase, learn=plan))
    if change.stage == "term":
        return _term_phase(phase, base, change)
    atoms = list(getattr(phase, change.stage))
    if change.kind == "again":
        base_atoms = list(getattr(base, change.stage))
        new = [atom for atom in base_atoms if atom.name == change.other or atom.name in {a.name for a in atoms}]
        own = [atom for atom in atoms if atom.name not in {a.name for a in base_atoms}]
        return without_unread_parts(_chained(phase, change.stage, [*new, *own]))
    if change.name not in [atom.name for atom in atoms]:
        return phase
    twins = [atom for atom in getattr(base, change.stage) if atom.name == change.other]
    new = [part for atom in atoms for part in (twins if atom.name == change.name else [atom])]
    return without_unread_parts(_relinked(_chained(phase, change.stage, new), base))


def _term_phase(phase: Phase, base: Phase, change: Change) -> Phase:
    base_terms = {term.name: term for term in plan_of(base).terms}
    if change.kind == "again":
        terms = (*plan_of(phase).terms, base_terms[change.other])
    elif change.name not in [term.name for term in plan_of(phase).terms]:
        return phase
    else:
        replacement = (base_terms[change.other],) if change.kind == "back" else ()
        terms = tuple(
            new for term in plan_of(phase).terms for new in ((term,) if term.name != change.name else replacement)
        )
    if not terms:
        raise ValueError("it is the method's only term: without it nothing is learned")
    return without_unread_parts(_supplied(replace(phase, learn=_learn(plan_of(phase), terms, {})), base))


def _supplied(phase: Phase, base: Phase) -> Phase:
    """Add the parent's credit parts that write what terms read and no part of the phase writes."""
    written = {name for placed in phase.parts() for name in placed.part.writes}
    read = {name for term in plan_of(phase).terms for name in _read(term, written) if name.startswith(MUST_BE_READ)}
    more = [atom for atom in base.credit if atom.writes & (read - written)]
    return replace(phase, credit=chain(*phase.credit, *more)) if more else phase


def _relinked(phase: Phase, base: Phase) -> Phase:
    """Replace parts that read what no part writes any more by parts of the parent that write the same without it."""
    written = set(phase.draw.writes | phase.rollout.writes)
    for stage in CHAINS:
        atoms: list[Part] = []
        for atom in getattr(phase, stage):
            if _lacks(atom, written):
                same_writes = [other for other in getattr(base, stage) if other.writes & atom.writes]
                atom = next((other for other in same_writes if not _lacks(other, written)), atom)
            atoms.append(atom)
            written |= atom.writes
        phase = _chained(phase, stage, atoms)
    return phase


def _lacks(atom: Part, written: set[str]) -> bool:
    given = ("model:", "store:", "given:", "task:")
    return any(name not in written and not name.startswith(given) for name in atom.reads)


def _needed(models: Mapping[str, Role], method: Method, phases: Sequence[Phase]) -> dict[str, Role]:
    """The method's own models, and the parent's models that its parts now use."""
    read = {name for phase in phases for placed in phase.parts() for name in placed.part.reads}
    read |= {name for phase in phases for term in plan_of(phase).terms for name in term.reads}
    called = {name.removeprefix("model:").split(".")[0] for name in read if name.startswith("model:")}
    return {name: role for name, role in models.items() if name in method.models or name in called}


def _chained(phase: Phase, stage: str, atoms: Sequence[Part]) -> Phase:
    return replace(phase, **{stage: chain(*atoms)})  # type: ignore[arg-type]


def _learn(plan: Learn, terms: tuple[Term, ...], changed: dict[str, object]) -> Learn:
    return Learn(*terms, **{**plan.settings(), **changed})


def _names(method: Method, stage: str) -> list[str]:
    return list(dict.fromkeys(getattr(phase, stage).name for phase in method.phases))


def _atoms(method: Method, stage: str) -> dict[str, Part]:
    return {atom.name: atom for phase in method.phases for atom in getattr(phase, stage)}


def _terms(method: Method) -> dict[str, Term]:
    return {term.name: term for phase in method.phases for term in plan_of(phase).terms}


def _read(term: Term, have: set[str]) -> frozenset[str]:
    """What a term reads, the tokens that it trains on included."""
    return term.reads | tokens_read(term, have)


def _of_a_term(atom: Wired) -> bool:
    """Whether a part only selects the tokens of a term, so that it is added and removed with the term."""
    return bool(atom.writes) and all(name.startswith("claim:") for name in atom.writes)


def same(a: object, b: object) -> bool:
    """Whether two parts are equal: functions by code, closure and defaults, dataclasses by their fields."""
    if isinstance(a, FunctionType) and isinstance(b, FunctionType):
        return a.__code__ is b.__code__ and same(_closure(a), _closure(b)) and same(a.__defaults__, b.__defaults__)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if type(a) is type(b) and hasattr(a, "__dataclass_fields__"):
        return all(same(getattr(a, name), getattr(b, name)) for name in a.__dataclass_fields__)
    return bool(a == b)


def _closure(function: FunctionType) -> list[object]:
    """The values of a function's closure."""
    return [cell.cell_contents for cell in function.__closure__ or ()]
