"""A method's composition in words: parts, terms and the other models, each of them."""

from __future__ import annotations

import pytest

from burnish.compare.lineage import composition
from burnish.methods.table import find
from burnish.report.show import built


@pytest.mark.parametrize("name", ["grpo", "ppo", "sft", "dpo"])
def test_a_composition_names_every_part_term_and_model(name: str) -> None:
    method, found = built(find(name)), composition(find(name))
    assert {placed.part.name for phase in method.phases for placed in phase.parts()} <= found
    terms = {f"{t.name}: {t.unit}, {t.norm.name}" for phase in method.phases for t in phase.learn.terms}
    assert terms and terms <= found
    others = {f"{role.liveness} {other}" for other, role in method.models.items() if other != method.product}
    assert others <= found
