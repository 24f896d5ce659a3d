"""The parent of a method: the basic method with the most similar composition."""

from __future__ import annotations

import re

from burnish.learn.learn import plan_of
from burnish.methods.table import METHODS, Entry, load_all
from burnish.report.show import built

_CLAIM = re.compile(r"claim\((\w+), (.*)\)")
BASES = ("grpo", "ppo", "sft", "dpo", "online_dpo", "reinforce", "best_of_n_distill", "gkd", "reward_model")


def composition(entry: Entry) -> frozenset[str]:
    """The parts, terms and models of a method, as strings; a claim and `Term(on=...)` read alike: "pg on policy"."""
    example = built(entry)
    parts = {_CLAIM.sub(r"\1 on \2", placed.part.name) for phase in example.phases for placed in phase.parts()}
    terms = {f"{t.name}: {t.unit}, {t.norm.name}" for phase in example.phases for t in plan_of(phase).terms}
    terms |= {f"{t.name} on {', '.join(t.authors)}" for p in example.phases for t in plan_of(p).terms if t.authors}
    models = {f"{role.liveness} {name}" for name, role in example.models.items() if name != example.product}
    return frozenset(parts | terms | models)


def parent(name: str, entry: Entry) -> str:
    """The basic method whose composition differs least; ties go to the first in BASES."""
    load_all()
    parts = composition(entry)
    others = [base for base in BASES if base != name]
    return min(others, key=lambda other: (len(parts ^ composition(METHODS[other])), BASES.index(other)))
