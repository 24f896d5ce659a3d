"""Parts that nothing needs once another part or a term is gone."""

from __future__ import annotations

from dataclasses import replace

from burnish.core.method import MUST_BE_READ, Phase
from burnish.core.parts import Wired, chain, tokens_read

CHAINS = ("score", "select", "credit")


def without_unread_parts(phase: Phase) -> Phase:
    """The phase without the parts of score, select and credit whose writes are no longer read."""
    while True:
        have = {name for placed in phase.parts() for name in placed.part.writes}
        read = set(phase.learn.reads).union(*(placed.part.reads for placed in phase.parts()))
        read = read.union(*(term.reads | tokens_read(term, have) for term in phase.learn.terms))
        unread = [placed for placed in phase.parts() if placed.stage in CHAINS and _is_unread(placed.part, read)]
        if not unread:
            return phase
        stage, part = unread[0].stage, unread[0].part
        left = chain(*(atom for atom in getattr(phase, stage) if atom is not part))
        phase = replace(phase, **{stage: left})  # type: ignore[arg-type]


def _is_unread(part: Wired, read: set[str]) -> bool:
    """Whether a part writes something that must be read, and none of it is."""
    writes = {name for name in part.writes if name.startswith(MUST_BE_READ)}
    return bool(writes) and not writes & read
