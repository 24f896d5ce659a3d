"""Frozen models that only terms of coefficient 0 need: `--beta 0` loads no reference and runs no passes of it."""

from __future__ import annotations

from dataclasses import replace

from burnish.learn.learn import plan_of
from burnish.learn.term import Term
from burnish.method import Method, Part, Phase, chain


def without_idle_models(method: Method) -> Method:
    """The method without frozen models that cannot change a gradient, the parts that read them, and their terms."""
    for name, role in method.models.items():
        followed = any(other.follows == name for other in method.models.values())
        if role.liveness == "frozen" and name != method.product and not followed:
            method = _without(method, name)
    return method


def _without(method: Method, name: str) -> Method:
    """The method without the model; the method as it is where something needs the model.

    A model that no part reads is an opponent, or a measure's: it stays.
    """
    phases = []
    for phase in method.phases:
        left = _phase_without(phase, f"model:{name}.")
        if left is None:
            return method
        phases.append(left)
    if all(left is phase for left, phase in zip(phases, method.phases, strict=True)):
        return method
    models = {other: role for other, role in method.models.items() if other != name}
    return replace(method, models=models, phases=tuple(phases))


def _phase_without(phase: Phase, model: str) -> Phase | None:
    """The phase without the parts of credit that write streams from the model; None where it needs them."""
    atoms = list(phase.credit)
    idle = [atom for atom in atoms if _reads(atom, model) and all(name.startswith("stream:") for name in atom.writes)]
    streams = {name for atom in idle for name in atom.writes}
    others = [placed.part for placed in phase.parts() if placed.part not in idle]
    plan = plan_of(phase)
    terms = [term for term in plan.terms if not (_constant_zero(term) and term.reads & streams)]
    needed = [*(part.reads for part in others), *(term.reads for term in terms), plan.reads, phase.publish.reads]
    if not terms or any(reads & streams or any(name.startswith(model) for name in reads) for reads in needed):
        return None
    if not idle:
        return phase
    credit = chain(*(atom for atom in atoms if atom not in idle))
    return replace(phase, credit=credit, learn=plan.with_terms(*terms))


def _reads(part: Part, model: str) -> bool:
    return any(name.startswith(model) for name in part.reads)


def _constant_zero(term: Term) -> bool:
    return isinstance(term.coef, int | float) and term.coef == 0
