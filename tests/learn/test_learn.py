"""The one division: norms against slow obvious loops, units of every kind, and identities between methods."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import SMALL, build_cast, coin, credited, doubled
from torch import Tensor

from burnish.core.method import Method, method
from burnish.core.parts import chain
from burnish.core.roles import roles
from burnish.core.step import Notes, Step
from burnish.core.types import Clock, Group
from burnish.credit.group import group_relative
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn, accumulate, measure
from burnish.learn.norms import Counts, Norm, constant, group_mean, seq_mean, seq_sum_mean, token_mean, unit_mean
from burnish.learn.term import Live, Term
from burnish.learn.terms import pg_clip, pg_reinforce
from burnish.methods.hybrid import chord, chord_phi, prefix_rft
from burnish.methods.policy import grpo, ppo
from burnish.rollout.sample import sample
from burnish.score.verify import verify
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded

TASK = rewarded(source("sort"), coin)


def reinforce(norm: Norm, *terms: Term) -> Method:
    """REINFORCE with a group baseline: the smallest policy gradient there is."""
    terms = terms or (pg_reinforce(norm=norm),)
    return method(
        draw=prompts(TASK),
        rollout=sample(4),
        score=verify(TASK),
        credit=group_relative(),
        learn=Learn(*terms),
        models=roles(),
    )


def gradients(models, plan: Learn, groups: list[Group], step: Step) -> Tensor:
    models["policy"].optimiser.zero()
    accumulate(groups, plan, step)
    return torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()])


def slow(models, groups: list[Group], weigh) -> Tensor:
    """One trace at a time, its own loss, its own weight: sum of weigh(trace, group) * sum_t -A_t log pi_t."""
    models["policy"].optimiser.zero()
    for group in groups:
        for trace in group.traces:
            mask = trace.by("policy")
            logp = models["policy"].outputs([trace.tokens], [mask], {"logp"})["logp"]
            (weigh(trace, group) * (-trace.streams["adv"][mask] * logp).sum()).backward()
    return torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()])


def n(trace) -> int:
    return int(trace.by("policy").sum())


@pytest.mark.parametrize(
    ("norm", "weigh"),
    [
        (token_mean, lambda t, g, gs: 1 / sum(n(t) for g in gs for t in g.traces)),
        (seq_mean, lambda t, g, gs: 1 / n(t) / sum(len(g.traces) for g in gs)),
        (seq_sum_mean, lambda t, g, gs: 1 / sum(len(g.traces) for g in gs)),
        (group_mean, lambda t, g, gs: 1 / sum(n(t) for t in g.traces) / len(gs)),
        (constant(50), lambda t, g, gs: 1 / (50 * sum(len(g.traces) for g in gs))),
        (constant(), lambda t, g, gs: 1 / (SMALL.max_new_tokens * sum(len(g.traces) for g in gs))),
    ],
)
def test_norms_equal_the_slow_loop(norm: Norm, weigh, small_model: Path) -> None:
    built = reinforce(norm)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        wanted = slow(models, groups, lambda t, g, groups=groups: weigh(t, g, groups))
        found = gradients(models, phase.learn, groups, replace_budget(step, 100))
        assert torch.allclose(found, wanted, rtol=1e-9, atol=1e-12)


def replace_budget(step: Step, budget: int) -> Step:
    return Step(step.clock, step.models, replace(step.settings, token_budget=budget))


def by_sequence(live: Live) -> Tensor:
    """-A log pi(y), one number a sequence: A is the same on all tokens of a reply, so it is the token sum."""
    return live.per_row(-live.adv * live.logp)


def by_group(live: Live) -> Tensor:
    """A listwise loss: the cross-entropy between softmax(A) and softmax(log pi(y)) over each group's replies."""
    logp, length = live.per_row(live.logp), live.per_row(torch.ones_like(live.logp))
    adv = live.per_row(live.adv) / length
    losses = []
    for g in range(int(live.group.max()) + 1):
        mine = live.group == g
        losses.append(-(torch.softmax(adv[mine], 0) * torch.log_softmax(logp[mine], 0)).sum())
    return torch.stack(losses)


SEQUENCE = Term(name="pg", unit="sequence", loss=by_sequence, live=("logp",), streams=("adv",), norm=unit_mean)
GROUP = Term(name="pg", unit="group", loss=by_group, live=("logp",), streams=("adv",), norm=unit_mean)


def test_a_sequence_unit_equals_the_token_unit_with_summed_tokens(small_model: Path) -> None:
    token = reinforce(seq_sum_mean)
    models = doubled(build_cast(token, small_model))
    for phase, groups, step in credited(token, models):
        a = gradients(models, phase.learn, groups, step)
        b = gradients(models, Learn(SEQUENCE), groups, replace_budget(step, 60))
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-12)


def test_a_group_unit_survives_any_split_even_a_group_larger_than_the_budget(small_model: Path) -> None:
    built = reinforce(unit_mean, GROUP)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        whole = gradients(models, phase.learn, groups, step)
        for budget in (1, 90, 400):
            cut = gradients(models, phase.learn, groups, replace_budget(step, budget))
            assert torch.allclose(whole, cut, rtol=1e-9, atol=1e-12)


def test_measure_takes_the_same_notes_and_moves_nothing(small_model: Path) -> None:
    built = grpo(TASK, n=4)
    models = build_cast(built, small_model)
    for phase, groups, step in credited(built, models):
        models["policy"].optimiser.zero()
        first, second = (
            Step(step.clock, models, SMALL, Notes()),
            Step(step.clock, models, replace(SMALL, token_budget=80), Notes()),
        )
        measure(groups, phase.learn, first)
        assert all(p.grad is None for p in models["policy"].module.parameters())
        accumulate(groups, phase.learn, second)
        for name, value in first.notes.means().items():
            assert second.notes.means()[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


def same_gradient(a: Method, b: Method, small_model: Path, to: float = 1e-9) -> None:
    """Both methods, from the same weights and randomness, move the policy the same way."""
    found = []
    for built in (a, b):
        models = doubled(build_cast(built, small_model))
        found += [gradients(models, phase.learn, groups, step) for phase, groups, step in credited(built, models)]
    assert float((found[0] - found[1]).norm() / found[0].norm()) < to


def grpo_token_mean(n: int) -> Method:
    from burnish.credit.streams import behaviour

    return method(
        draw=prompts(TASK),
        rollout=sample(n),
        score=verify(TASK),
        credit=chain(group_relative(), behaviour()),
        learn=Learn(pg_clip(0.2, norm=token_mean)),
        models=roles(),
    )


def test_chord_without_mu_is_grpo(small_model: Path) -> None:
    """mu = 0: the demonstrations are drawn but weigh nothing."""
    same_gradient(chord_phi(TASK, n=4, mu=0.0), _as_demos(grpo_token_mean(4)), small_model)
    same_gradient(chord(TASK, n=4, peak=0.0, valley=0.0), _as_demos(grpo_token_mean(4)), small_model)


def _as_demos(built: Method) -> Method:
    """The same method drawing the tasks that `demos` draws (the purpose of a draw is part of its key)."""
    from burnish.draw.tasks import demos

    return replace(built, phases=(replace(built.phases[0], draw=demos(TASK)),))


def test_chord_with_mu_one_is_sft(small_model: Path) -> None:
    from burnish.methods.imitation import sft

    same_gradient(chord(TASK, n=4, peak=1.0, valley=1.0), sft(TASK), small_model)


def test_prefix_rft_with_no_prefix_tokens_trains_the_rollouts_alone(small_model: Path) -> None:
    """top = 0 drops every prefix token, so that no demonstrated token is claimed by the policy gradient."""
    built = prefix_rft(TASK, n=4, top=0.0)
    for _, groups, _ in credited(built, build_cast(built, small_model)):
        assert not any(bool((t.streams["claim:pg"] & t.by("demo")).any()) for g in groups for t in g.traces)
        assert any("hybrid" in t.tags for g in groups for t in g.traces)


def test_prefix_rfts_entropy_bonus_is_a_mean_over_tokens() -> None:
    """Entropies 1, and 1/2, 1/2, 2, of two replies: -0.001 x 4/4; over 2 sequences x a longest reply of 10, x 4/20."""
    bonus = prefix_rft(TASK).phases[0].learn.terms[1]
    losses = bonus.loss(SimpleNamespace(entropy=torch.tensor([1.0, 0.5, 0.5, 2.0]))).tolist()
    weights = [bonus.norm.weight(length, 4) for length in (1, 3, 3, 3)]
    size = bonus.norm.size(Counts(tokens=4, sequences=2, groups=1, units=4, longest=10))
    assert bonus.coef * sum(w * loss for w, loss in zip(weights, losses, strict=True)) / size == pytest.approx(-0.001)


def test_grpo_without_kl_on_policy_is_reinforce(small_model: Path) -> None:
    """beta = 0 and the first update: the ratio is 1, so the clipped surrogate's gradient is -A grad log pi."""
    same_gradient(grpo(TASK, n=4, beta=0.0), reinforce(seq_mean), small_model, to=1e-6)


def test_ppo_with_lambda_one_no_kl_and_no_critic_is_reinforce_with_whitened_returns(small_model: Path) -> None:
    """The critic starts near 0, gamma = lambda = 1: every token's advantage is the whitened score of its reply."""
    built = ppo(TASK, n=4, kl=0.0, lam=1.0, gamma=1.0, updates=1)
    models = build_cast(built, small_model)
    with torch.no_grad():
        models["critic"].module.score.weight.zero_()
    for _, groups, _ in credited(built, models):
        tokens = [(t.scores["reward"], t.streams["adv"][t.by("policy")]) for g in groups for t in g.traces]
        flat = torch.cat([torch.full_like(adv, reward) for reward, adv in tokens])
        mean, std = float(flat.mean()), float(flat.std(unbiased=False))
        for reward, adv in tokens:
            assert torch.allclose(adv, torch.full_like(adv, (reward - mean) / (std + 1e-8)), atol=1e-5)


@pytest.mark.parametrize("build", [chord, chord_phi])
def test_chord_has_the_released_dual_clip(build) -> None:
    """A = -1: a ratio of 5 costs 3, the dual clip; one of 2 costs 2. A = 1: a ratio of 5 earns 1.2, the clip."""
    term = build(TASK).phases[0].learn.terms[0]
    old = torch.full((3,), 0.1).log()
    live = SimpleNamespace(
        logp=torch.tensor([0.5, 0.2, 0.5]).log(),
        old=old,
        streams={"adv": torch.tensor([-1.0, -1.0, 1.0])},
        entropy=old,
        note=lambda *_: None,
    )
    assert term.loss(live).tolist() == pytest.approx([3.0, 2.0, -1.2])


def test_chord_schedule_by_hand() -> None:
    """Warm-up 2 to peak 0.8, then a cosine over 4 steps to 0.2: 0, 0.4, 0.8, ..., half way 0.5, then 0.2 for good."""
    from burnish.core.types import Clock
    from burnish.methods.hybrid import _mu

    mu = _mu(0.8, 0.2, 2, 4)
    found = [mu(Clock(step, 100)) for step in (0, 1, 2, 4, 6, 50)]
    assert found == pytest.approx([0.0, 0.4, 0.8, 0.5, 0.2, 0.2])


def test_archer_policy_gradient_is_minus_advantage_times_the_utterances_log_prob(small_model: Path) -> None:
    from burnish.methods.agents import archer

    built = archer(source("guess"), batch=3, critic_warmup=0, critic_updates=1, actor_updates=1)
    models = doubled(build_cast(built, small_model))
    phase, groups, step = [found for found in credited(built, models) if found[0].name == "actor"][0]
    found = gradients(models, phase.learn, groups, step)
    models["policy"].optimiser.zero()
    for group in groups:
        fresh = group.traces[1]
        mask = torch.arange(len(fresh)) >= len(fresh) - len(fresh.turns[-1])
        logp = models["policy"].outputs([fresh.tokens], [mask], {"logp"})["logp"].sum()
        (-float(fresh.streams["adv"][-1]) * logp / len(groups)).backward()
    wanted = torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()])
    assert torch.allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_an_optimiser_step_by_hand(small_model: Path) -> None:
    """AdamW's first step moves every weight by lr, against the sign of its gradient."""
    built = reinforce(seq_mean)
    models = build_cast(built, small_model, replace(SMALL, lr=1e-2, clip=0.0))
    for phase, groups, step in credited(built, models):
        accumulate(groups, phase.learn, step)
        p = next(iter(models["policy"].optimiser.named.values()))
        before, gradient = p.detach().clone(), p.grad.clone()
        models["policy"].optimiser.step(step.clock)
        moved = gradient.abs() > 1e-4
        assert torch.allclose((before - p.detach())[moved], 1e-2 * gradient[moved].sign(), rtol=1e-2)


def test_clipping_limits_the_norm(small_model: Path) -> None:
    built = reinforce(seq_mean)
    models = build_cast(built, small_model, replace(SMALL, clip=1e-3))
    for phase, groups, step in credited(built, models):
        accumulate(groups, phase.learn, step)
        said = models["policy"].optimiser.clip()
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in models["policy"].optimiser.named.values()))
        assert norm == pytest.approx(1e-3, rel=1e-3) and said > norm


def test_a_spoilt_gradient_moves_nothing(small_model: Path) -> None:
    optimiser = build_cast(reinforce(seq_mean), small_model, SMALL)["policy"].optimiser
    for spoilt in (0.0, 1.0, 0.0):  # moments are there when it happens
        before = [p.detach().clone() for p in optimiser.named.values()]
        for p in optimiser.named.values():
            p.grad = torch.full_like(p, float("nan") if spoilt else 0.1)
        state = {name: value.clone() for name, value in optimiser.state_dict().items()}
        optimiser.step(Clock(0, 10), torch.tensor(spoilt))
        moved = [not torch.equal(old, p) for old, p in zip(before, optimiser.named.values(), strict=True)]
        assert not any(moved) if spoilt else all(moved)
        if spoilt:
            assert all(torch.equal(value, optimiser.state_dict()[name]) for name, value in state.items())
