"""The game of preferences: the opponent's mixture, the preference, the advantage."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import SMALL, build_cast, credited, doubled
from test_credit import TASK as QUESTION
from test_credit import trace
from test_learn import TASK, gradients
from torch import tensor

from burnish.core.parts import Rollout
from burnish.core.preferences import by_bradley_terry, by_comparison
from burnish.core.roles import frozen, roles
from burnish.core.step import Notes, Step
from burnish.core.types import Clock, Group
from burnish.credit.nash import nash_advantage
from burnish.draw.tasks import prompts
from burnish.engine.mixture import geometric
from burnish.methods.nash import nash_ema, nash_md
from burnish.models.build import build
from burnish.rollout.sample import sample


def test_preferences_by_hand() -> None:
    """Higher 1, equal 1/2, lower 0; the Bradley-Terry chance of a score that is log 3 higher is 3/4."""
    assert [by_comparison(1, 0), by_comparison(1, 1), by_comparison(0, 1)] == [1.0, 0.5, 0.0]
    assert by_bradley_terry(math.log(3), 0) == pytest.approx(0.75)
    assert by_bradley_terry(0, 1000) == 0.0


def test_nash_advantage_by_hand() -> None:
    """Score 1 against 0 and 1: P = 3/4. Log-ratios 1, 2 and tau 0.1: to go 3, 2: A = 0.25 - 0.3, 0.25 - 0.2."""
    mine = trace(("task", 1), ("policy", 2), scores={"reward": 1.0})
    mine.streams |= {"old": tensor([math.nan, 1.0, 2.0]), "ref": tensor([math.nan, 0.0, 0.0])}
    theirs = [trace(("task", 1), ("mixture", 2), scores={"reward": r}) for r in (0.0, 1.0)]
    step = SimpleNamespace(clock=Clock(0, 1), notes=Notes())
    nash_advantage(by_comparison, 0.1, rival="mixture").call([Group(QUESTION, [mine, *theirs])], step)
    assert mine.streams["adv"][1:].tolist() == pytest.approx([-0.05, 0.05])
    assert all(bool(t.streams["adv"].isnan().all()) for t in theirs)


def mixture(n: int, share: float, tag: str = "mixture") -> Rollout:
    """The opponent of `nash_md`."""
    return sample(n, blend=geometric("ref", share), author="mixture", tag=tag)


@pytest.fixture
def two(small_model: Path, other_model: Path) -> Step:
    """A policy and a reference that differ."""
    models = build(roles(ref=frozen(str(other_model))), small_model, SMALL, device="cpu")
    return Step(Clock(0, 10), models, SMALL)


def test_a_mixture_of_one_is_that_one(two: Step) -> None:
    """share 0 samples what the policy samples from the same noise, share 1 what the reference does,
    log-probs and all.
    """
    tasks = prompts(TASK).call(two)
    for share, who in ((0.0, "policy"), (1.0, "ref")):
        mixed, plain = mixture(2, share, tag="x").call(tasks, two), sample(2, who=who, tag="x").call(tasks, two)
        for a, b in zip((t for g in mixed for t in g.traces), (t for g in plain for t in g.traces), strict=True):
            assert a.tokens.tolist() == b.tokens.tolist() and a.note == b.note
            assert torch.allclose(a.turns[-1].logp, b.turns[-1].logp, atol=1e-4)


def test_the_mixtures_log_probs_are_those_of_the_mixed_logits(two: Step) -> None:
    tasks = prompts(TASK).call(two)
    for group in mixture(1, 0.3).call(tasks, two):
        (one,) = group.traces
        mask = one.by("mixture")
        logs = [
            torch.log_softmax(two.models[who].outputs([one.tokens], [mask], {"logits"})["logits"], -1)
            for who in ("policy", "ref")
        ]
        mixed = torch.log_softmax(0.7 * logs[0] + 0.3 * logs[1], -1)
        wanted = mixed.gather(-1, one.tokens[mask][:, None])[:, 0]
        assert torch.allclose(one.turns[-1].logp, wanted, atol=1e-4)


@pytest.mark.parametrize("build_method", [nash_md, nash_ema])
def test_without_the_regulariser_it_is_reinforce_against_the_opponents_mean(build_method, small_model: Path) -> None:
    """Rewards of 0 or 1 and tau = 0: P - 1/2 = (r - mean of the opponent's r) / 2."""
    built = build_method(TASK, n=3, tau=0.0)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        found = gradients(models, phase.learn, groups, step)
        models["policy"].optimiser.zero()
        for group in groups:
            mine = [t for t in group.traces if "policy" in t.authors()]
            theirs = [t.scores["reward"] for t in group.traces if "policy" not in t.authors()]
            assert len(mine) == len(theirs) == 3
            for t in mine:
                logp = models["policy"].outputs([t.tokens], [t.by("policy")], {"logp"})["logp"].sum()
                weight = (t.scores["reward"] - sum(theirs) / 3) / 2
                (-weight * logp / (3 * len(groups))).backward()
        wanted = torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()])
        assert float((found - wanted).norm() / wanted.norm()) < 1e-6
