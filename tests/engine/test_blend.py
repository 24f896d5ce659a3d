"""Mixtures of members: their distributions by hand, and the log-probs that are recorded with their samples."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, credited, doubled
from test_learn import TASK, gradients
from torch import tensor

from burnish.core.roles import frozen, roles
from burnish.engine.local import Request
from burnish.engine.mixture import arithmetic, geometric, masked_by
from burnish.learn.learn import measure
from burnish.methods.policy import ppo
from burnish.models.build import build
from burnish.zoo.nlpo import nlpo

P, Q = tensor([[0.5, 0.3, 0.2]]), tensor([[0.1, 0.3, 0.6]])


def mixed(blend) -> torch.Tensor:
    return torch.softmax(blend.mix([P.log(), Q.log()]), -1)[0]


def test_blends_by_hand() -> None:
    """Half and half: arithmetic (0.3, 0.3, 0.4); geometric sqrt(pq) = (.2236, .3, .3464) over its sum 0.87."""
    assert torch.allclose(mixed(arithmetic("q", 0.5)), tensor([0.3, 0.3, 0.4]))
    root = tensor([math.sqrt(0.05), 0.3, math.sqrt(0.12)])
    assert torch.allclose(mixed(geometric("q", 0.5)), root / root.sum())
    assert torch.allclose(mixed(masked_by("q", 0.7)), tensor([0.0, 0.6, 0.4]))  # q's top 0.7: tokens 2 and 1


@pytest.mark.parametrize("kind", [arithmetic, geometric])
def test_blends_at_the_ends_are_one_of_the_two(kind) -> None:
    assert torch.allclose(mixed(kind("q", 0.0)), P[0])
    assert torch.allclose(mixed(kind("q", 1.0)), Q[0])


def test_the_recorded_log_probs_are_the_mixtures(small_model: Path, other_model: Path) -> None:
    models = build(roles(teacher=frozen(str(other_model))), small_model, SMALL, device="cpu")
    prompts = [torch.arange(5, 9), torch.arange(5, 12)]
    requests = [Request(prompts[k % 2], k, 8) for k in range(8)]
    blend = geometric("teacher", 0.4)
    for request, sample in zip(
        requests, models["policy"].generate(requests, [models["teacher"]], blend.mix), strict=True
    ):
        row = torch.cat([request.prompt, sample.tokens])
        mask = torch.arange(len(row)) >= len(request.prompt)
        with torch.no_grad():
            logits = [models[name].outputs([row], [mask], {"logits"})["logits"] for name in ("policy", "teacher")]
        wanted = torch.log_softmax(blend.mix(logits), -1).gather(-1, sample.tokens[:, None])[:, 0]
        assert torch.allclose(sample.logp, wanted, atol=1e-5)


def test_a_share_outside_is_refused() -> None:
    with pytest.raises(ValueError, match="a share of 1.5 in a blend is not between 0 and 1"):
        arithmetic("q", 1.5)


def test_nlpo_masks_nothing_at_one_and_is_ppo_there(small_model: Path) -> None:
    found = []
    for built in (nlpo(TASK, n=2, mask_top_p=1.0, updates=1), ppo(TASK, n=2, updates=1)):
        models = doubled(build_cast(built, small_model))
        found += [gradients(models, phase.learn, groups, step) for phase, groups, step in credited(built, models)]
    assert float((found[0] - found[1]).norm() / found[1].norm()) < 1e-6


def test_nlpo_samples_only_what_its_mask_allows_and_its_ratio_starts_at_one(small_model: Path) -> None:
    built = nlpo(TASK, n=4, mask_top_p=0.3, updates=1)
    models = build_cast(built, small_model)
    for phase, groups, step in credited(built, models):
        for trace in (t for group in groups for t in group.traces):
            mask = trace.by("policy")
            with torch.no_grad():
                logits = models["mask"].outputs([trace.tokens], [mask], {"logits"})["logits"]
            allowed = masked_by("q", 0.3).mix([logits, logits])
            assert torch.isfinite(allowed.gather(-1, trace.tokens[mask][:, None])).all()
        measure(groups, phase.learn, step)
        assert step.notes.means()["pg/old_kl"] == pytest.approx(0, abs=1e-6)
