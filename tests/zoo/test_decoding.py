"""Models that guide each other at decoding time: distributions by hand, what is recorded, and the limits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, credited, doubled
from test_learn import TASK, gradients
from torch import tensor

from burnish.core.roles import frozen, roles
from burnish.core.step import Step
from burnish.core.types import Clock
from burnish.engine.local import Request
from burnish.engine.mixture import guided
from burnish.methods.preference_reference_free import cpo
from burnish.models.build import build
from burnish.tasks.table import source
from burnish.zoo.eft import eft
from burnish.zoo.genarm import genarm, genarm_rm


def probs(weights: dict[str, float], *logits: list[float]) -> torch.Tensor:
    return torch.softmax(guided(weights).mix([tensor([x], dtype=torch.float32) for x in logits]), -1)[0]


def test_guided_distributions_by_hand() -> None:
    """EFT: large (0, 0), tuned (1, 0), untuned (0, 0): s(1) = .731. GenARM: base (0, 0), reward (.8, .2): .8."""
    assert probs({"tuned": 1, "untuned": -1}, [0, 0], [1, 0], [0, 0])[0] == pytest.approx(0.7311, abs=1e-4)
    reward = tensor([0.8, 0.2]).log().tolist()
    assert probs({"r": 1.0}, [0, 0], reward)[0] == pytest.approx(0.8)
    assert probs({"r": 0.5}, [0, 0], reward)[0] == pytest.approx(2 / 3)  # odds of 2, the root of 4
    both = probs({"a": 0.2, "b": 4.0}, [0, 0], [1, 0], [0, 1])  # log odds .2 - 4
    assert both[0] == pytest.approx(1 / (1 + torch.tensor(3.8).exp().item()))


def test_constants_of_logits_change_nothing() -> None:
    assert torch.allclose(probs({"a": 2.0}, [5, 6], [7, 9]), probs({"a": 2.0}, [0, 1], [0, 2]))


def rollouts(built, models) -> list[torch.Tensor]:
    phase = built.phases[0]
    step = Step(Clock(0, 1), models, SMALL, phase=phase.name, product=built.product)
    groups = phase.rollout.call(phase.draw.call(step), step)
    return [trace.tokens for group in groups for trace in group.traces]


def test_limits(small_model: Path, other_model: Path) -> None:
    """Weight 0 is the model; where the model is the untuned one, EFT is the tuned one: the same tokens."""
    task, other = source("sort"), str(other_model)
    own = genarm(task, reward_lm=other, alpha=0.0, n=2)
    alone = rollouts(own, build_cast(own, small_model))
    none = eft(task, tuned=other, untuned=other, weight=0.0, n=2)
    assert all(map(torch.equal, rollouts(none, build_cast(none, small_model)), alone))
    back = eft(task, tuned=f"{other}*0.5,{other}*0.5", untuned=other, n=2)  # nothing was changed by tuning
    assert all(map(torch.equal, rollouts(back, build_cast(back, small_model)), alone))
    tuned = eft(task, tuned=other, untuned=str(small_model), n=2)
    theirs = rollouts(own, build_cast(own, other_model))
    assert all(map(torch.equal, rollouts(tuned, build_cast(tuned, small_model)), theirs))
    assert not all(map(torch.equal, theirs, alone))


def test_the_temperature_acts_on_the_sum(small_model: Path, other_model: Path) -> None:
    models = build(roles(guide=frozen(str(other_model))), small_model, SMALL, device="cpu")
    blend = guided({"guide": 0.7})
    request = Request(torch.arange(5, 9), 3, 8, temperature=0.6)
    (sample,) = models["policy"].generate([request], [models["guide"]], blend.mix)
    row = torch.cat([request.prompt, sample.tokens])
    mask = torch.arange(len(row)) >= len(request.prompt)
    with torch.no_grad():
        logits = [models[name].outputs([row], [mask], {"logits"})["logits"] for name in ("policy", "guide")]
    wanted = torch.log_softmax(blend.mix(logits) / 0.6, -1).gather(-1, sample.tokens[:, None])[:, 0]
    assert torch.allclose(sample.logp, wanted, atol=1e-5)


def test_the_reward_model_is_cpo_without_imitation(small_model: Path) -> None:
    found = []
    for built in (genarm_rm(TASK, beta=0.3), cpo(TASK, beta=0.3, alpha=0.0)):
        models = doubled(build_cast(built, small_model))
        found += [gradients(models, phase.learn, groups, step) for phase, groups, step in credited(built, models)]
    assert float((found[0] - found[1]).norm()) <= 1e-9 * float(found[1].norm()) and float(found[1].norm()) > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a*b", "the weight of 'a' is 'b', not a number"),
        ("a*-1", "not a model with a weight of at least 0"),
        ("*2", "not a model with a weight"),
        ("a,,b", "not a model with a weight"),
    ],
)
def test_bad_guides_are_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        genarm(source("sort"), reward_lm=text)
