"""How methods relate: each is the nearest of the basic ones with parts exchanged, found by comparing compositions."""

from __future__ import annotations

from burnish.methods.table import METHODS, Entry, load_all
from burnish.report.show import built

BASES = ("grpo", "ppo", "sft", "dpo", "online_dpo", "reinforce", "best_of_n_distill", "gkd", "reward_model")


def composition(entry: Entry) -> frozenset[str]:
    """The parts, terms and members of a method, as words."""
    example = built(entry)
    found = {room.part.name for phase in example.phases for room in phase.rooms()}
    found |= {f"{t.name}: {t.unit}, {t.norm.name}" for phase in example.phases for t in phase.learn.terms}
    return frozenset(
        found | {f"{role.liveness} {name}" for name, role in example.cast.items() if name != example.product}
    )


def parent(name: str, entry: Entry) -> str:
    """The basic method whose composition differs least; the first in the order of BASES where several do."""
    load_all()
    mine = composition(entry)
    others = [base for base in BASES if base != name]
    return min(others, key=lambda other: (len(mine ^ composition(METHODS[other])), BASES.index(other)))
