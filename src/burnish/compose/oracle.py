"""A method with the preference oracle of a run: behind what scores its replies, in every phase that scores some."""

from __future__ import annotations

from dataclasses import replace

from burnish.compose.guard import guarded
from burnish.compose.rewards import REWARD, count_failures
from burnish.compose.writers import POLICY, for_writer, writer_of
from burnish.core.method import Method, Phase
from burnish.core.parts import chain
from burnish.core.scorer import Named


def with_oracle(method: Method, oracle: Named | None, drop_failed: bool = False) -> Method:
    """The method whose replies the oracle compares; raises ValueError where it scores no sampled replies."""
    if oracle is None:
        return method
    phases = tuple(_in_phase(phase, oracle, drop_failed) for phase in method.phases)
    if phases == method.phases:
        raise ValueError(
            f"{method.name} does not score sampled replies, so --preference {oracle.name} has none to compare; leave "
            "it out, or use a method that samples (sppo, inpo, nash_md)"
        )
    models = dict(method.models)
    for name, role in oracle.scorer.models.items():
        if models.setdefault(name, role) != role:
            raise ValueError(
                f"--preference {oracle.name} brings a model {name!r}, and {method.name} has another; rename one"
            )
    return replace(method, phases=phases, models=models)


def _in_phase(phase: Phase, oracle: Named, drop_failed: bool) -> Phase:
    atoms = list(phase.score)
    places = [i for i, atom in enumerate(atoms) if REWARD in atom.writes and writer_of(atom) is not None]
    if not places:
        return phase
    author = writer_of(atoms[places[-1]]) or POLICY
    last = max(i for i, atom in enumerate(atoms) if REWARD in atom.writes | atom.updates)
    added = guarded(for_writer(oracle.scorer.part, author), oracle.name, REWARD)
    return replace(phase, score=chain(*atoms[: last + 1], added, count_failures(drop_failed), *atoms[last + 1 :]))
