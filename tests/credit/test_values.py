"""Value models trained beside the policy: numbers derived by hand, and what each method becomes without its idea."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import torch
from conftest import SMALL, build_cast, coin, credited, doubled
from torch import Tensor, tensor

from burnish.core.loop import loop
from burnish.core.method import Method, method
from burnish.core.parts import chain
from burnish.core.roles import frozen, roles, trained
from burnish.core.schedules import before
from burnish.core.step import Notes, Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit.gae import advantages_and_returns, gae, token_rewards, whiten
from burnish.credit.returns import lambda_returns, monte_carlo, n_step_returns
from burnish.credit.streams import behaviour, ref, streams
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn, accumulate
from burnish.learn.maths.chi2 import bounded_exp
from burnish.learn.norms import Counts, Norm, seq_mean
from burnish.learn.terms import pg_clip, value_clip
from burnish.methods.imitation import sft
from burnish.methods.policy import a2c, ppo
from burnish.rollout.sample import sample
from burnish.score.shape import Moments, normalised
from burnish.score.verify import verify
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo.chi2_regularisation import chi2_ppo, chi2_pull, chi2_scale, symmetric_chi2
from burnish.zoo.dvpo import lambda_advantages
from burnish.zoo.ma_rlhf import (
    clipped,
    ma_rlhf,
    macro_advantages_and_returns,
    macro_lengths,
    random_lengths,
    surprise_lengths,
)
from burnish.zoo.ppo_max import ppo_max
from burnish.zoo.reft import reft
from burnish.zoo.rto import dense_bonus, rto
from burnish.zoo.vapo import length_adaptive, vapo

TASK = rewarded(source("sort"), coin)
ASKED = Task("question", "q", {}, "q")
STEP = SimpleNamespace(clock=Clock(0, 10), notes=Notes())
NAN = math.nan


def trace(*turns: tuple[str, int], **facts: object) -> Trace:
    made: list[Turn] = []
    for author, length in turns:
        made.append(Turn(torch.arange(length), author, parent=made[-1] if made else None))
    return Trace(tuple(made), **facts)  # type: ignore[arg-type]


def of_policy(models, groups: list[Group], plan: Learn, step: Step) -> Tensor:
    """The gradient of the policy's own terms."""
    models["policy"].optimiser.zero()
    mine = Learn(*(term for term in plan.terms if term.trainee == "policy"), logp_temperature=plan.logp_temperature)
    accumulate(groups, mine, step)
    return torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()])


def last_gradient(built: Method, model: Path, phase: int = -1) -> Tensor:
    models = doubled(build_cast(built, model))
    which, groups, step = list(credited(built, models))[phase]
    return of_policy(models, groups, which.learn, step)


def assert_close(a: Tensor, b: Tensor, to: float = 1e-6) -> None:
    assert float(a.norm()) > 0
    assert float((a - b).norm() / a.norm()) < to


# ------------------------------------------------------------------------------------------------------- A2C and
# returns


def test_n_step_returns_by_hand() -> None:
    """r = 0, 0, 1, 0, 2; V = .1 .2 .3 .4 .5; gamma 0.5, stretches of 2: tokens (0, 1), (2, 3), (4).
    R_4 = 2;  R_3 = 0 + 0.5 V_4 = 0.25;  R_2 = 1 + 0.5 * 0.25 = 1.125;  R_1 = 0 + 0.5 V_2 = 0.15;  R_0 = 0.075.
    """
    r, v = tensor([0.0, 0, 1, 0, 2]), tensor([0.1, 0.2, 0.3, 0.4, 0.5])
    assert torch.allclose(n_step_returns(r, v, 0.5, 2), tensor([0.075, 0.15, 1.125, 0.25, 2.0]))


def test_n_step_limits_are_gae_with_lambda_one_and_zero() -> None:
    g = torch.Generator().manual_seed(0)
    r, v = torch.randn(7, generator=g), torch.randn(7, generator=g)
    for steps, lam in ((100, 1.0), (1, 0.0)):
        assert torch.allclose(n_step_returns(r, v, 0.9, steps), advantages_and_returns(r, v, 0.9, lam)[1], atol=1e-6)


def test_a2c_with_a_long_look_and_no_critic_is_reinforce(small_model: Path) -> None:
    """V = 0, gamma = 1, no entropy bonus: every token's advantage is its reply's score."""
    built = a2c(TASK, n=4, lookahead=1000, gamma=1.0, entropy=0.0)
    models = doubled(build_cast(built, small_model))
    models["critic"].module.score.weight.data.zero_()
    for phase, groups, step in credited(built, models):
        found = of_policy(models, groups, phase.learn, step)
        models["policy"].optimiser.zero()
        tokens = sum(int(t.by("policy").sum()) for g in groups for t in g.traces)
        for t in (t for g in groups for t in g.traces):
            logp = models["policy"].outputs([t.tokens], [t.by("policy")], {"logp"})["logp"]
            (-t.scores["reward"] * logp.sum() / tokens).backward()
        assert_close(found, torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()]))


def test_returns_without_advantages_are_those_of_gae() -> None:
    t = trace(("task", 1), ("policy", 3))
    t.streams |= {"reward": tensor([NAN, 0.0, 0.5, 1.0]), "value": tensor([NAN, 0.1, 0.2, 0.3])}
    gae(gamma=0.9, lam=0.5).call([Group(ASKED, [t])], STEP)
    adv, returns = t.streams["adv"].clone(), t.streams["returns"].clone()
    lambda_advantages(gamma=0.9, lam=0.5).call([Group(ASKED, [t])], STEP)
    lambda_returns(gamma=0.9, lam=0.5).call([Group(ASKED, [t])], STEP)
    assert torch.equal(adv[1:], t.streams["adv"][1:]) and torch.equal(returns[1:], t.streams["returns"][1:])
    monte_carlo(gamma=0.9).call([Group(ASKED, [t])], STEP)
    assert torch.allclose(t.streams["returns"][1:], tensor([0.9 * 0.5 + 0.81, 0.5 + 0.9, 1.0]))


# --------------------------------------------------------------------------------------------------------------- VAPO


def test_length_adaptive_lambda_by_hand() -> None:
    """alpha = 0.05: 40 tokens give 1 - 1/2 = 0.5, 200 give 0.9, 20 give 0; 10 would give -1 and are held at 0.
    The powers of lambda then sum to 1/(1 - lambda) = alpha l."""
    lam = length_adaptive(0.05)
    assert [lam(n) for n in (40, 200, 20, 10)] == pytest.approx([0.5, 0.9, 0.0, 0.0])
    assert 1 / (1 - lam(200)) == pytest.approx(0.05 * 200)


def test_decoupled_gae_by_hand() -> None:
    """Two tokens, r = 0, 1, V = 0.5, 0.6, gamma 1. Policy: lambda of length 2 is 0: A = 0.1, 0.4. Critic: lambda 1: R =
    1, 1.
    """
    t = trace(("task", 1), ("policy", 2))
    t.streams |= {"reward": tensor([NAN, 0.0, 1.0]), "value": tensor([NAN, 0.5, 0.6])}
    gae(lam=length_adaptive(0.05), value_lam=1.0).call([Group(ASKED, [t])], STEP)
    assert torch.allclose(t.streams["adv"][1:], tensor([0.1, 0.4]))
    assert torch.allclose(t.streams["returns"][1:], tensor([1.0, 1.0]))


def test_vapo_without_its_ideas_is_ppo_with_lambda_one(small_model: Path) -> None:
    """alpha infinite makes lambda 1 for every length; no imitation of successes, one clip range."""
    plain = ppo(TASK, n=4, kl=0.0, lam=1.0)
    assert_close(
        last_gradient(vapo(TASK, n=4, alpha=math.inf, positive=0.0, eps_high=0.2), small_model),
        last_gradient(plain, small_model),
    )


def test_vapo_imitates_correct_replies_alone_and_trains_the_value_model_first(small_model: Path) -> None:
    built = vapo(TASK, n=4, value_warmup=1)
    models = build_cast(built, small_model)
    for t in (
        t for phase, groups, _ in credited(built, models) if phase.name == "main" for g in groups for t in g.traces
    ):
        assert torch.equal(t.streams["claim:positive"], t.by("policy") & bool(t.scores["reward"] > 0.5))
    before_it = {name: _weights(models, name) for name in ("policy", "critic")}
    steps = loop(built, models, SMALL, steps=2)
    next(steps)
    assert torch.equal(before_it["policy"], _weights(models, "policy"))
    assert not torch.equal(before_it["critic"], _weights(models, "critic"))
    next(steps)
    assert not torch.equal(before_it["policy"], _weights(models, "policy"))


def _weights(models, name: str) -> Tensor:
    return torch.cat([p.detach().flatten().clone() for p in models[name].module.parameters()])


# ------------------------------------------------------------------------------------------------------------- MA-RLHF


def test_macro_actions_by_hand() -> None:
    """4 tokens in macros of 2: lengths 2, 1, 1 (the last token stands alone). r = .2 .4 | 0 | 1, V = .1 .3 | .4 | .5
    r_tau = .3 0 1, V_tau = .2 .4 .5. gamma 1, lambda 0.5: delta = .3+.4-.2 = .5, 0+.5-.4 = .1, 1-.5 = .5
    A = .5 + .5 (.1 + .5 .5) = .675, .1 + .25 = .35, .5; R = A + V_tau = .875, .75, 1.
    """
    assert macro_lengths(4, 2) == [2, 1, 1] and macro_lengths(3, 1) == [1, 1, 1] and macro_lengths(1, 5) == [1]
    adv, returns = macro_advantages_and_returns(
        tensor([0.2, 0.4, 0, 1]), tensor([0.1, 0.3, 0.4, 0.5]), [2, 1, 1], 1.0, 0.5
    )
    assert torch.allclose(adv, tensor([0.675, 0.675, 0.35, 0.5]))
    assert torch.allclose(returns, tensor([0.875, 0.875, 0.75, 1.0]))


def test_random_cuts_cover_the_reply_and_repeat() -> None:
    for tokens in (1, 2, 7, 40, 200):
        lengths = random_lengths(tokens, 3, Random(tokens))
        assert sum(lengths) == tokens and lengths[-1] == 1 and lengths == random_lengths(tokens, 3, Random(tokens))
    assert sorted(random_lengths(64, 3, Random(0)))[:-1] == sorted([1, 2, 3, 5, 10] * 3 + [1])[:-1]


def test_perplexity_cuts_by_hand() -> None:
    """Surprise 3 2 1 4 2 5 1: the next token surprises more at tokens 2 (1 < 4) and 4 (2 < 5), where macros begin.
    They begin at 0, 2, 4, and the last token, 6, stands alone: lengths 2, 2, 2, 1."""
    assert surprise_lengths(torch.tensor([3.0, 2, 1, 4, 2, 5, 1])) == [2, 2, 2, 1]
    assert surprise_lengths(torch.tensor([3.0])) == [1] and surprise_lengths(torch.tensor([3.0, 4.0])) == [1, 1]


@pytest.mark.parametrize("cut", ["random", "perplexity"])
def test_other_cuts_step(cut: str, small_model: Path) -> None:
    built = ma_rlhf(TASK, n=2, cut=cut)
    report = next(loop(built, build_cast(built, small_model), SMALL, steps=1))
    assert report.metrics["macros"] >= 1


def test_an_unknown_cut_is_refused() -> None:
    with pytest.raises(ValueError, match="option 'cut' is 'words'; it must be fixed, random or perplexity"):
        ma_rlhf(TASK, cut="words")


def test_macros_of_one_token_are_gae() -> None:
    g = torch.Generator().manual_seed(3)
    r, v = torch.randn(6, generator=g), torch.randn(6, generator=g)
    for a, b in zip(
        macro_advantages_and_returns(r, v, macro_lengths(6, 1), 0.9, 0.8),
        advantages_and_returns(r, v, 0.9, 0.8),
        strict=True,
    ):
        assert torch.allclose(a, b)


def plain_ppo(kl: float, eps: float = 0.2) -> Method:
    """PPO as `ppo`, without whitening."""
    return method(
        draw=prompts(TASK),
        rollout=sample(4),
        score=verify(TASK),
        credit=chain(
            behaviour(),
            ref(),
            streams("critic", "policy", value="value"),
            token_rewards(kl=kl),
            gae(),
        ),
        learn=Learn(pg_clip(eps), value_clip(0.2)),
        models=roles(ref=frozen("policy"), critic=trained(outputs=1)),
    )


def test_ma_rlhf_with_macros_of_one_token_is_ppo(small_model: Path) -> None:
    built = ma_rlhf(TASK, n=4, length=1)
    assert_close(last_gradient(built, small_model), last_gradient(plain_ppo(0.05), small_model))
    other = last_gradient(ma_rlhf(TASK, n=4, length=5), small_model)
    assert float((other - last_gradient(built, small_model)).norm()) > 0


# ------------------------------------------------------------------------------------------------------------- PPO-max


def test_running_moments_are_those_of_everything_seen() -> None:
    moments, seen = Moments(), []
    for batch in ([1.0, 2.0, 4.0], [], [10.0], [3.0, -5.0]):
        moments.see(batch)
        seen += batch
        assert moments.mean == pytest.approx(statistics.mean(seen))
        assert moments.std == pytest.approx(statistics.stdev(seen))
    again = Moments()
    again.load_state_dict(moments.state_dict())
    assert (again.mean, again.std) == (moments.mean, moments.std)


def test_normalised_and_clipped_scores_by_hand() -> None:
    """Scores 1, 0, 0, 1: mean 1/2, sample std 0.57735: +-0.866, cut to +-0.8. Then a batch of 1s moves
    the mean to 2/3.
    """
    group = Group(ASKED, [trace(("task", 1), ("policy", 1), scores={"reward": r}) for r in (1.0, 0, 0, 1)])
    part = normalised(Moments(), 0.8)
    part.call([group], STEP)
    assert [t.scores["normal"] for t in group.traces] == pytest.approx([0.8, -0.8, -0.8, 0.8])
    later = Group(ASKED, [trace(("task", 1), ("policy", 1), scores={"reward": 1.0}) for _ in range(2)])
    part.call([later], STEP)
    assert later.traces[0].scores["normal"] == pytest.approx((1 / 3) / statistics.stdev([1, 0, 0, 1, 1, 1]))
    clipped(2.5).call([Group(ASKED, [trace(("task", 1), scores={"reward": -7.0})])], STEP)


def test_scores_that_never_differ_are_normalised_to_zero() -> None:
    group = Group(ASKED, [trace(("task", 1), ("policy", 1), scores={"reward": 1.0}) for _ in range(3)])
    normalised(Moments(), 0.8).call([group], STEP)
    assert [t.scores["normal"] for t in group.traces] == [0.0, 0.0, 0.0]


def test_ppo_max_with_scores_that_are_normal_already_is_ppo(small_model: Path) -> None:
    """Normalisation is affine: fed its own mean 0 and std 1, and a wide clip, PPO-max is PPO without whitening."""
    built = ppo_max(TASK, n=4, limit=100.0)
    moments = built.stateful()["scores"]
    moments.load_state_dict({"count": 10**12, "mean": 0.0, "squares": 10**12 - 1.0})
    found = last_gradient(replace(built, phases=built.phases[1:]), small_model)
    assert_close(found, last_gradient(plain_ppo(0.05), small_model), to=1e-5)


# ----------------------------------------------------------------------------------------------------------------- RTO


def test_token_rewards_of_a_dpo_policy_by_hand() -> None:
    """beta1 (log dpo - log ref) = 0.05 * (0.5, -3, 0.2) = 0.025, -0.15 cut to -0.05, 0.01, on top of 0, 0, 1."""
    t = trace(("task", 1), ("policy", 3))
    t.streams |= {"reward": tensor([NAN, 0, 0, 1.0]), "ref": tensor([NAN, -1.0, -1.0, -1.0])}
    t.streams["dpo"] = tensor([NAN, -0.5, -4.0, -0.8])
    dense_bonus(0.05, 0.05, stream="dpo").call([Group(ASKED, [t])], STEP)
    assert torch.allclose(t.streams["reward"][1:], tensor([0.025, -0.05, 1.01]))


def test_rto_with_an_untrained_dpo_policy_has_no_token_rewards(small_model: Path, other_model: Path) -> None:
    same = last_gradient(rto(TASK, n=4, dpo_policy=str(small_model)), small_model)
    assert_close(same, last_gradient(rto(TASK, n=4, dpo_policy=str(other_model), beta1=0.0), small_model))
    other = last_gradient(rto(TASK, n=4, dpo_policy=str(other_model)), small_model)
    assert float((other - same).norm() / same.norm()) > 1e-3


def averaged(norm: Norm, *replies: list[float]) -> float:
    """What a norm makes of the losses of the tokens of these replies."""
    tokens = sum(len(reply) for reply in replies)
    size = norm.size(Counts(tokens, len(replies), groups=1, units=tokens, longest=10))
    return sum(norm.weight(len(reply), tokens) * loss for reply in replies for loss in reply) / size


def test_rto_averages_over_replies(other_model: Path) -> None:
    """Losses 2 | 0 0 1: (2 + 1/3) / 2 = 7/6, where the mean over all tokens is 3/4."""
    for term in rto(TASK, dpo_policy=str(other_model)).phases[0].learn.terms:
        assert averaged(term.norm, [2.0], [0.0, 0.0, 1.0]) == pytest.approx(7 / 6)


# ---------------------------------------------------------------------------------------------------------------- ReFT


def test_reft_warms_up_by_sft_and_its_reference_is_the_warmed_up_policy(small_model: Path) -> None:
    assert_close(last_gradient(reft(TASK), small_model, phase=0), last_gradient(sft(TASK), small_model))
    built = reft(TASK, n=2, warmup=3, updates=1)
    models = build_cast(built, small_model)
    steps = loop(built, models, SMALL, steps=4)
    start = _weights(models, "policy")
    for _ in range(2):
        next(steps)
        assert torch.equal(_weights(models, "policy"), _weights(models, "ref"))
    assert not torch.equal(start, _weights(models, "policy"))
    next(steps)
    reference = _weights(models, "ref")
    next(steps)
    assert torch.equal(reference, _weights(models, "ref")) and not torch.equal(reference, _weights(models, "policy"))
    with pytest.raises(ValueError, match="option 'warmup' is 0; it must be at least 1"):
        reft(TASK, warmup=0)


def test_reft_after_the_warm_up_is_ppo_with_sequence_means(small_model: Path) -> None:
    plain = ppo(TASK, n=4, kl=0.05)
    credit, old = plain.phases[0].credit, plain.phases[0].learn
    by_sequence = replace(plain.phases[0], credit=credit, learn=Learn(pg_clip(0.2, norm=seq_mean), *old.terms[1:]))
    assert_close(
        last_gradient(reft(TASK, n=4), small_model), last_gradient(replace(plain, phases=(by_sequence,)), small_model)
    )


# ---------------------------------------------------------------------------------------------------------------- chi2


def test_symmetric_chi2_by_hand() -> None:
    """L = log 2: (2 - 1) + (1/2 - 1) = 1/2, either sign; 0 and flat at 0. e^12 goes on as e^10 (1 + 2) = 3 e^10."""
    x = tensor([math.log(2), -math.log(2), 0.0], requires_grad=True)
    found = symmetric_chi2(x)
    assert found.tolist() == pytest.approx([0.5, 0.5, 0.0])
    found.sum().backward()
    assert x.grad.tolist() == pytest.approx([1.5, -1.5, 0.0])
    assert bounded_exp(tensor([12.0])).item() == pytest.approx(3 * math.exp(10), rel=1e-6)


def test_chi2_scale_by_hand() -> None:
    """Two replies with L = log 2 and 0: m = (1/2 + 0) / 2 = 1/4, scale 1 / (2 * 1/2) = 1. At pi = ref: 1 / (2 * 0.01) =
    50.
    """
    for ratio, want in ((math.log(2) / 2, 1.0), (0.0, 50.0)):
        traces = [trace(("task", 1), ("policy", 2)) for _ in range(2)]
        for t, each in zip(traces, (ratio, 0.0), strict=True):
            t.streams |= {"old": tensor([NAN, each - 1, each - 1]), "ref": tensor([NAN, -1.0, -1.0])}
        chi2_scale().call([Group(ASKED, traces)], STEP)
        assert traces[0].streams["chi2_scale"].tolist() == pytest.approx([want] * 3, rel=1e-5)


def test_chi2_term_has_the_gradient_of_the_root_of_the_batch_mean(small_model: Path, other_model: Path) -> None:
    """With another model as reference, against autograd through sqrt(mean over replies) itself."""
    built = chi2_ppo(TASK, n=4)
    built = replace(built, models={**built.models, "ref": frozen(str(other_model))})
    models = doubled(build_cast(built, small_model))
    for _, groups, step in credited(built, models):
        small = Step(step.clock, models, replace(SMALL, token_budget=100))
        found = of_policy(models, groups, Learn(chi2_pull(coef=0.5)), small)
        models["policy"].optimiser.zero()
        ratios = []
        for t in (t for g in groups for t in g.traces):
            mask = t.by("policy")
            logp = models["policy"].outputs([t.tokens], [mask], {"logp"})["logp"]
            ratios.append((logp - t.streams["ref"][mask]).sum())
        (0.5 * symmetric_chi2(torch.stack(ratios)).mean().sqrt()).backward()
        assert_close(found, torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()]), to=1e-4)


def test_chi2_ppo_without_the_penalty_is_ppo(small_model: Path) -> None:
    assert_close(
        last_gradient(chi2_ppo(TASK, n=4, chi2=0.0), small_model),
        last_gradient(ppo(TASK, n=4, kl=0.0, eps=0.4), small_model),
    )


# ------------------------------------------------------------------------------------------------- small general parts


def test_before_is_the_complement_of_after() -> None:
    assert [before(2, 3)(Clock(step, 10)) for step in range(4)] == [3, 3, 0, 0]


def test_whiten_over_some_tokens_leaves_the_others() -> None:
    t = trace(("task", 1), ("policy", 4))
    t.streams["adv"] = tensor([NAN, 1.0, 3.0, 9.0, 5.0])
    part = whiten(where=lambda t: t.streams["adv"] < 6)
    part.call([Group(ASKED, [t])], STEP)
    root = math.sqrt(8 / 3)
    assert t.streams["adv"][1:].tolist() == pytest.approx([-2 / root, 0.0, 9.0, 2 / root])
