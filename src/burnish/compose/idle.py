"""Models that only coefficients of 0 multiply: `--beta 0` loads no reference and runs no passes of it.

A term of the loss is idle where its coefficient is the constant 0, a part of credit where it declares `Part.idle`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from burnish.compose.unread import without_unread_parts
from burnish.core.method import Method, Part, Phase, chain
from burnish.core.schedules import is_zero
from burnish.learn.learn import plan_of


def without_idle_models(method: Method) -> Method:
    """The method without models that cannot change a gradient, the parts that read them, and their terms.

    A model that no part reads is an opponent, or a measure's: it stays.
    """
    for name in method.models:
        if _may_go(method, name):
            method = _without(method, name)
    return method


def _may_go(method: Method, name: str) -> bool:
    """Whether the model is there only to be read: it is not what the run saves at the end, and nothing follows it."""
    followed = any(other.follows == name for other in method.models.values())
    return name in method.models and name != method.product and not followed


def _without(method: Method, name: str) -> Method:
    """The method without the model and those that it alone needs; the method as it is where something needs it."""
    phases = []
    for phase in method.phases:
        left = _phase_without(phase, name)
        if left is None:
            return method
        phases.append(left)
    gone = {other for other in method.models if _may_go(method, other)} & (_asked(method.phases) - _asked(phases))
    if not gone:
        return method
    models = {other: role for other, role in method.models.items() if other not in gone}
    return replace(method, models=models, phases=tuple(phases))


def _phase_without(phase: Phase, name: str) -> Phase | None:
    """The phase without what reads or trains the model; itself where nothing does, None where something needs it."""
    model, plan = f"model:{name}.", plan_of(phase)
    if not any(read.startswith(model) for read in _reads(phase)):
        return phase
    credit = chain(*(atom.idle or atom for atom in phase.credit))
    derived = _derived(credit, model)
    others = [term for term in plan.terms if term.trainee != name]
    terms = [term for term in others if not (is_zero(term.coef) and _depends(term.reads, model, derived))]
    smaller = without_unread_parts(replace(phase, credit=credit, learn=plan.with_terms(*terms)))
    still = {term.trainee for term in terms} == {term.trainee for term in others}
    needed = any(read.startswith(model) for read in _reads(smaller))
    return smaller if terms and still and not needed else None


def _derived(credit: Part, model: str) -> set[str]:
    """The names that parts of credit write from the model's outputs."""
    written: set[str] = set()
    for atom in credit:
        if _depends(atom.reads, model, written):
            written |= atom.writes | atom.updates
    return written


def _depends(reads: frozenset[str], model: str, derived: set[str]) -> bool:
    return bool(reads & derived) or any(name.startswith(model) for name in reads)


def _asked(phases: Iterable[Phase]) -> set[str]:
    """The models that parts read, or terms that train another model."""
    reads = {name for phase in phases for placed in phase.parts() for name in placed.part.reads}
    for term in (term for phase in phases for term in phase.learn.terms):
        reads |= {name for name in term.reads if not name.startswith(f"model:{term.trainee}.")}
    return {name.removeprefix("model:").partition(".")[0] for name in reads if name.startswith("model:")}


def _reads(phase: Phase) -> frozenset[str]:
    """What the parts, the terms and the publishing of a phase read."""
    parts, terms = (placed.part.reads for placed in phase.parts()), (term.reads for term in phase.learn.terms)
    return phase.publish.reads.union(*parts, *terms)
