"""Methods for models that draw: formulas by hand, and what each becomes when its idea is off."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.learn.term import Live, Term
from burnish.methods.table import find
from burnish.tasks.table import source
from burnish.zoo.d3po import step_pairs
from burnish.zoo.dance_grpo import some_steps
from burnish.zoo.grpo_guard import normalised_log_ratio
from burnish.zoo.prdp import proximal_difference


def live(row: list[int], pairs: list[tuple[int, int]], outputs: dict[str, Tensor], **streams: list[float]) -> Live:
    rows = max(row) + 1
    return Live(
        outputs=outputs,
        streams={name: torch.tensor(values, dtype=torch.float64) for name, values in streams.items()},
        row=torch.tensor(row),
        rows=rows,
        pairs=torch.tensor(pairs).reshape(-1, 2),
        lists=[],
        group=torch.zeros(rows, dtype=torch.long),
        clock=Clock(0, 1),
    )


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def terms_of(name: str, **options: Any) -> list[Term]:
    terms: Any = find(name).build(source("paint"), **options).phases[0].learn.terms
    return list(terms)


def test_the_normalised_ratio_is_the_noise_times_the_way_of_the_mean() -> None:
    """log rho' = mean(z (mu - mu_old)) to 1e-12, for 1,000 pixels; its mean over z is 0, that of log rho is not."""
    dice = torch.Generator().manual_seed(0)
    old, z, way = (torch.randn(4, 1000, generator=dice, dtype=torch.float64) for _ in range(3))
    std, mu = double(0.1, 0.3, 0.5, 0.9), old + 0.01 * way
    x = old + std[:, None] * z

    def logp(mean: Tensor) -> Tensor:
        return (-((x - mean) ** 2) / (2 * std[:, None] ** 2) - std.log()[:, None]).mean(1)

    def drift(mean: Tensor) -> Tensor:
        return mean / std[:, None] / math.sqrt(1000)

    found = normalised_log_ratio(logp(mu), logp(old), drift(mu), drift(old), std)
    assert torch.allclose(found, (z * (mu - old)).mean(1), atol=1e-12, rtol=0)
    assert bool(((logp(mu) - logp(old)) - found / std < 0).all())  # the bias that it takes away


def test_guard_without_a_step_is_flow_grpo() -> None:
    """On the policy that sampled, both ratios are 1, and both gradients are A times that of log p, up to std."""
    guard, flow = terms_of("grpo_guard")[0], terms_of("flow_grpo")[0]
    logp = double(-1.0, -2.0).requires_grad_()
    drift = double(0.5, 0.25)[:, None]
    both = []
    for term in (guard, flow):
        outputs = {"logp": logp, "entropy": double(0, 0), "drift": drift, "std": double(0.5, 0.25)}
        sees = live([0, 1], [], outputs, adv=[1.0, -2.0], old=[-1.0, -2.0])
        sees.streams["old_drift"] = drift
        loss = term.loss(sees)
        assert loss.tolist() == pytest.approx([-1.0, 2.0])
        both.append(torch.autograd.grad(loss.sum(), logp)[0])
    assert both[1].tolist() == pytest.approx([-1.0, 2.0])
    assert (both[0] / both[1]).tolist() == pytest.approx([0.5, 0.25])


def test_the_kl_of_steps_by_hand() -> None:
    """|(1, 2) - (1.5, 1)|^2 / 2 = (0.25 + 1) / 2."""
    term = terms_of("flow_grpo")[1]
    outputs = {"drift": double(1.0, 2.0)[None], "ref.drift": double(1.5, 1.0)[None]}
    assert float(term.loss(live([0], [], outputs))) == pytest.approx(0.625)


def test_d3po_by_hand_and_with_one_step_dpo() -> None:
    """Steps of ratios e^0.05, e^0.5 (clipped to 1.1) and e^-0.05, e^-0.5 (clipped to 0.9), beta 2."""
    outputs = {"logp": double(0.05, 0.5, -0.05, -0.5)}
    loss = float(step_pairs(2.0, 0.1).loss(live([0, 0, 1, 1], [(0, 1)], outputs, ref=[0.0] * 4)))
    one, two = 2 * 0.1, 2 * (math.log(1.1) - math.log(0.9))
    assert loss == pytest.approx((math.log1p(math.exp(-one)) + math.log1p(math.exp(-two))) / 2)
    sees = live([0, 1], [(0, 1)], {"logp": double(0.7, -0.4)}, ref=[0.1, 0.2])
    dpo = terms_of("online_dpo", beta=0.3)[0]
    assert float(step_pairs(0.3, 1e9).loss(sees)) == pytest.approx(float(dpo.loss(sees)))


def test_prdp_is_zero_at_its_optimum_and_takes_the_larger_error() -> None:
    """Two chains of two steps, log-ratios 0.3 and -0.1: D = 0.4 = (5 - 1) / 10. Old = ref: the clip at 0.05 leaves
    D' = 0.05 + 0.05 + 0.05 + 0.05 = 0.2 and the larger error 0.04."""
    outputs = {"logp": double(0.1, 0.2, -0.05, -0.05)}
    streams = {"ref": [0.0] * 4, "reward": [0.0, 5.0, 0.0, 1.0]}
    optimum = live([0, 0, 1, 1], [(0, 1)], outputs, old=outputs["logp"].tolist(), **streams)
    assert float(proximal_difference(10.0, 1e-4).loss(optimum)) == pytest.approx(0.0, abs=1e-12)
    held = live([0, 0, 1, 1], [(0, 1)], outputs, old=[0.0] * 4, **streams)
    assert float(proximal_difference(10.0, 0.05).loss(held)) == pytest.approx(0.04)
    free = proximal_difference(10.0, 1e9).loss(held)
    rebel = find("rebel").build(source("paint"), eta=1.0).phases[0].learn.terms[0]  # type: ignore[attr-defined]
    scaled = live([0, 0, 1, 1], [(0, 1)], outputs, old=[0.0] * 4, reward=[0.0, 0.5, 0.0, 0.1])
    assert float(free) == pytest.approx(float(rebel.loss(scaled)))


def test_some_steps_are_the_share_and_others_in_each_step() -> None:
    trace = Trace((Turn(torch.arange(3), "task"), Turn(torch.arange(10), "policy")))
    group = Group(Task("question", "x", {}, "x"), [trace])
    seen = []
    for number in (0, 1):
        step: Any = type("Step", (), {"clock": Clock(number, 5)})()
        some_steps(0.6).call([group], step)
        mask = trace.streams["claim:pg"]
        assert int(mask.sum()) == 6 and not bool(mask[:3].any())
        seen.append(mask.tolist())
    assert seen[0] != seen[1]
    some_steps(1.0).call([group], step)
    assert bool(trace.streams["claim:pg"][3:].all())


def test_what_each_method_is_beside_its_neighbours() -> None:
    """The same parts, another sampler, another part that learns; Diffusion-DPO is DPO with another beta."""
    roles = {name: find(name).build(source("paint")).models["policy"] for name in ("ddpo", "rlcm", "texforce")}
    assert {name: role.sampler for name, role in roles.items()} == {
        "ddpo": "ddim",
        "rlcm": "consistency",
        "texforce": "ddim",
    }
    assert replace(roles["texforce"], only="") == roles["ddpo"]
    pair = live([0, 1], [(0, 1)], {"logp": double(-0.2, -0.5)}, ref=[-0.3, -0.3])
    wanted = math.log1p(math.exp(-5000 * (0.1 + 0.2)))
    assert float(terms_of("diffusion_dpo")[0].loss(pair)) == pytest.approx(wanted)
    assert float(terms_of("diffusion_dpo", beta=0.1)[0].loss(pair)) == pytest.approx(
        float(terms_of("dpo", beta=0.1)[0].loss(pair))
    )
