"""Probes of how a model writes, of weights between two models, and of distances to others, on tiny."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from conftest import SMALL

from burnish.core.roles import trained
from burnish.evals.beside import divergence, pairs_ranked
from burnish.evals.between import _dip, interpolated
from burnish.evals.probed import Asked, answers
from burnish.evals.writing import STYLES, written
from burnish.models.build import Models, build
from burnish.models.known_models import resolve
from burnish.tasks.table import source


def built(name: str = "policy", outputs: int = 0) -> Models:
    roles = {name: trained(outputs=outputs)}
    return build(roles, resolve("tiny"), replace(SMALL, max_new_tokens=40), device="cpu")


@pytest.fixture(scope="module")
def tiny() -> Asked:
    models = built()
    return Asked(models, source("add:2"), replace(SMALL, max_new_tokens=40), 4, "policy", lambda: models)


def test_shares_of_styles_add_up(tiny: Asked) -> None:
    measures = written(tiny, k=4, tasks=6)
    shares = [sum(measures[f"share_{one}"][i] for one in STYLES) for i in range(6)]
    assert shares == pytest.approx([1.0] * 6)
    assert measures["share_largest"][0] == pytest.approx(sum(measures["share_plain"]) / 6)  # tiny knows no other
    assert measures["tries"] == (0.0,) * 6 and min(measures["letters"]) > 10


def test_the_dip_below_the_line_by_hand() -> None:
    """From 0.2 to 0.8 the line has 0.4 and 0.6 at a third and two thirds; 0.1 there is 0.3 below it."""
    assert _dip([0.2, 0.1, 0.7, 0.8], [0, 1 / 3, 2 / 3, 1]) == pytest.approx(0.3)
    assert _dip([0.2, 0.5, 0.7, 0.8], [0, 1 / 3, 2 / 3, 1]) == 0.0


def test_interpolation_leaves_the_weights_as_they_were() -> None:
    models, start = built(), built()
    with torch.no_grad():
        for p in models["policy"].module.parameters():
            p.mul_(1.001)
    before = [p.detach().clone() for p in models["policy"].module.parameters()]
    asked = Asked(models, source("add:1"), replace(SMALL, max_new_tokens=24), 4, "policy", lambda: start)
    measures = interpolated(asked, task="add:2", points=1, tasks=8)
    after = list(models["policy"].module.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert measures["sharpness"][0] > 0 and measures["sharpness_straggler"][0] > 0
    assert measures["sharpness"][0] > measures["sharpness_straggler"][0]
    assert 0 <= measures["dip"][0] <= 1 and 0 <= measures["shifted"][0] <= 1


def test_a_model_is_at_no_distance_from_itself(tiny: Asked) -> None:
    measures = divergence(tiny, model="tiny", name="itself", k=2, tasks=4)
    assert measures["kl_itself"] == pytest.approx((0.0,) * 4, abs=1e-3)


def test_a_scorer_of_length_ranks_pairs_by_length() -> None:
    """A head of zeros gives equal scores: each pair counts half."""
    models = built("rm", 1)
    head = next(p for name, p in models["rm"].module.named_parameters() if "score" in name)
    with torch.no_grad():
        head.zero_()
    models["rm"].weights_moved()
    asked = Asked(models, source("add:2"), SMALL, 4, "rm", lambda: models)
    assert pairs_ranked(asked, task="add:2,dialect=1", name="d1", tasks=5)["ranked_d1"] == (0.5,) * 5


def test_a_game_can_be_the_other_task(tiny: Asked) -> None:
    measures = answers(tiny, task="guess:1", k=2)
    assert len(measures["accuracy on guess:1"]) == 4
