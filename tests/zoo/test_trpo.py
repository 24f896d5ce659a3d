"""The natural-gradient step against an explicit Fisher matrix, and the promise it makes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import build_cast, credited, doubled, make_model
from test_learn import TASK

from burnish.core.method import Phase
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.learn.learn import Learn
from burnish.learn.trust_region import conjugate_gradient
from burnish.zoo.trpo import _Weights, trpo, trust_region


def test_conjugate_gradient_solves_by_hand() -> None:
    """[[4, 1], [1, 3]] x = [1, 2] has the solution (1/11, 7/11), found in two iterations."""
    a, b = torch.tensor([[4.0, 1.0], [1.0, 3.0]]), torch.tensor([1.0, 2.0])
    assert conjugate_gradient(lambda v: a @ v, b, 2).tolist() == pytest.approx([1 / 11, 7 / 11], abs=1e-6)


def test_the_finite_difference_is_the_fisher_product(tmp_path: Path) -> None:
    """F v = mean over tokens of grad log pi (grad log pi . v), token by token, in fp64."""
    model = make_model(
        tmp_path, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1
    )
    built = trpo(TASK, n=2)
    models = doubled(build_cast(built, model))
    phase, groups, step = next(credited(built, models))
    for group in groups:  # the anchor in full precision: exactly the live log-probs
        for trace in group.traces:
            mask = trace.by("policy")
            old = torch.full((len(trace),), float("nan"), dtype=torch.float64)
            with torch.no_grad():
                old[mask] = models["policy"].outputs([trace.tokens], [mask], {"logp"})["logp"]
            trace.streams["start"] = old
    weights = _Weights(step, "policy")
    v = torch.randn(
        sum(p.numel() for p in weights.parameters), generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    region = Learn(*(t for t in phase.learn.terms if t.name == "trust"))
    small = 1e-4  # the norms of a Llama are taken in fp32, so a smaller step would drown in rounding
    with weights.moved_by(small * v):
        found = weights.gradient(groups, region, step)
    assert found is not None
    wanted, tokens = torch.zeros_like(v), 0
    for group in groups:
        for trace in group.traces:
            mask = trace.by("policy")
            for logp in models["policy"].outputs([trace.tokens], [mask], {"logp"})["logp"]:
                grad = torch.autograd.grad(logp, weights.parameters, retain_graph=True, allow_unused=True)
                flat = torch.cat(
                    [
                        (torch.zeros_like(p) if x is None else x).flatten()
                        for p, x in zip(weights.parameters, grad, strict=True)
                    ]
                )
                wanted += flat * (flat @ v)
                tokens += 1
    assert float((found / small - wanted / tokens).norm() / (wanted / tokens).norm()) < 0.02


def test_a_step_stays_inside_the_region_and_improves_the_surrogate(small_model: Path) -> None:
    built = trpo(TASK, n=4, delta=0.02)
    models = build_cast(built, small_model)
    phase, groups, step = next(credited(built, models))
    assert phase.learn.move is not None
    phase.learn.move(groups, phase.learn, step)
    noted = step.notes.means()
    assert noted["trust/accepted"] == 1
    assert 0 < noted["trust/kl"] <= 0.02


@pytest.mark.parametrize("shift", [5e-2, -0.08])
def test_another_engines_log_probs_stop_no_step(small_model: Path, shift: float) -> None:
    """The anchor is off by 5e-2 at every token, as a bf16 sampler's is: the region's gradient is not 0 at the start."""
    built = trpo(TASK, n=4, delta=0.02)
    models = build_cast(built, small_model)
    phase, groups, step = next(credited(built, models))
    exact = _direction(groups, phase, step)
    for trace in (trace for group in groups for trace in group.traces):
        trace.streams["start"] = trace.streams["start"] + shift
    off = _direction(groups, phase, step)
    assert float(torch.nn.functional.cosine_similarity(exact, off, dim=0)) > 0.8
    assert phase.learn.move is not None
    phase.learn.move(groups, phase.learn, step)
    noted = step.notes.means()
    assert noted["trust/accepted"] == 1
    assert shift**2 / 2 < noted["trust/kl"] <= 0.02, "the measured KL has the anchor's own error in it"


def _direction(groups: list[Group], phase: Phase, step: Step) -> torch.Tensor:
    """Where a step moves the weights, which are put back."""
    parameters = list(step.models["policy"].module.parameters())
    before = [p.detach().clone() for p in parameters]
    assert phase.learn.move is not None
    phase.learn.move(groups, phase.learn, step)
    moved = torch.cat([(p.detach() - old).flatten() for p, old in zip(parameters, before, strict=True)])
    with torch.no_grad():
        for p, old in zip(parameters, before, strict=True):
            p.copy_(old)
    step.models["policy"].weights_moved()
    return moved


def test_the_region_is_anchored_on_the_trainers_log_probs(small_model: Path) -> None:
    """The sampler's log-probs are off by 5e-2 and more: rho reads them, the region does not."""
    built = trpo(TASK, n=4, delta=0.001)
    models = build_cast(built, small_model)
    _, groups, _ = next(credited(built, models))
    for trace in (trace for group in groups for trace in group.traces):
        mask = trace.by("policy")
        live = models["policy"].outputs([trace.tokens], [mask], {"logp"})["logp"].detach()
        assert torch.allclose(trace.streams["start"][mask], live, atol=1e-5)


def test_a_region_of_no_size_moves_nothing(small_model: Path) -> None:
    built = trpo(TASK, n=4)
    models = build_cast(built, small_model)
    phase, groups, step = next(credited(built, models))
    before = [p.detach().clone() for p in models["policy"].module.parameters()]
    trust_region("trust", delta=1e-30)(groups, phase.learn, step)
    assert all(torch.equal(a, b) for a, b in zip(before, models["policy"].module.parameters(), strict=True))
