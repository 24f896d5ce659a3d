"""Demonstrations, teachers and exploration together: numbers by hand, definitions as slow loops, limits."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, credited, doubled
from test_credit import STEP, trace
from test_credit import TASK as NO_TASK
from test_learn import TASK, _as_demos, gradients, grpo_token_mean, reinforce, same_gradient
from test_maths import log
from torch import Tensor, tensor

from burnish.core.loop import loop
from burnish.core.method import Method, method
from burnish.core.parts import chain
from burnish.core.roles import frozen, roles
from burnish.core.types import Clock, Group, Task, Trace
from burnish.credit.gae import gae, token_rewards, whiten
from burnish.credit.group import group_relative
from burnish.credit.streams import behaviour, streams
from burnish.credit.teacher import discounted_sum, mean_of_later
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.maths.hybrid import shaped_surrogate
from burnish.learn.norms import seq_mean
from burnish.methods.distillation import minillm, opd
from burnish.methods.hybrid import luffy
from burnish.methods.imitation import sft
from burnish.models.build import Models
from burnish.rollout.resets import anywhere, line_ends, reset
from burnish.rollout.sample import sample
from burnish.score.shape import Moments
from burnish.score.shaping import partial_for_answering
from burnish.score.verify import verify
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo.dr_po import dr_po
from burnish.zoo.ghpo import ghpo, with_hint
from burnish.zoo.grao import alignment_weights, grao
from burnish.zoo.kdrl import distilled_where, is_unsolved, is_wrong, kdrl, teacher_k2
from burnish.zoo.r3 import any_stage, r3, r3_staged, sliding_stage, stage_starts
from burnish.zoo.rl_plus import exploration_weight, mixture_ratio, mixture_surrogate, rl_plus
from burnish.zoo.rlgf import aggrevated, d2lols, lols, rlgf
from burnish.zoo.satori import reflection_reward, satori, squashed_model

CHAT = SimpleNamespace(text=lambda tokens: "".join("\n" if t == 0 else "x" for t in tokens.tolist()))


def logp_of(models, trace: Trace, *authors: str, temperature: float = 1.0) -> Tensor:
    return models["policy"].outputs([trace.tokens], [trace.by(*authors)], {"logp"}, temperature)["logp"]


def gradient_of(models, loss: Tensor) -> Tensor:
    models["policy"].optimiser.zero()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()])


# ----------------------------------------------------------------------------------------------------- luffy, rl-plus


def test_luffy_shaping_by_hand() -> None:
    """p = 0.1, gamma = 0.1: f = 1/2, so A = 2 gives -1; dL/dlogp = -2 * 0.1 * 0.1 / 0.2^2 = -1/2. p = 0.9: f = 0.9."""
    logp = log(0.1, 0.9).requires_grad_()
    found = shaped_surrogate(logp, tensor([2.0, 1.0]), 0.1)
    assert torch.allclose(found, tensor([-1.0, -0.9]))
    (g,) = torch.autograd.grad(found.sum(), logp)
    assert torch.allclose(g, tensor([-0.5, -0.09]))


def test_luffy_without_shaping_is_the_importance_weighted_gradient() -> None:
    """gamma f(p) tends to p as gamma grows: -A p, the ratio to a behaviour probability of 1."""
    logp, adv = log(0.1, 0.9), tensor([2.0, -1.0])
    assert torch.allclose(1e6 * shaped_surrogate(logp, adv, 1e6), -adv * logp.exp(), rtol=1e-5)


def test_rl_plus_ratio_by_hand() -> None:
    """p = 0.5, p_old = 0.2, U = 1: pi_omega = 0.6, r = 1 / 0.8 = 1.25. U = p_old: r = p / p_old = 2.5.
    With power 1/2 and A = 2: -1.25 * sqrt(1/2) * 2 = -1.767767, and as much for the gradient: it flows through p in r
    alone.
    """
    logp, old = log(0.5).requires_grad_(), log(0.2)
    assert mixture_ratio(logp, old, 1.0).item() == pytest.approx(1.25)
    assert mixture_ratio(logp, old, 0.2).item() == pytest.approx(2.5)
    loss = mixture_surrogate(logp, old, tensor([2.0]), 1.0, 0.5)
    assert loss.item() == pytest.approx(-1.767767, abs=1e-6)
    assert torch.autograd.grad(loss.sum(), logp)[0].item() == pytest.approx(-1.767767, abs=1e-6)


def test_rl_plus_switched_off_is_reinforce() -> None:
    """U = p_old, power 0, before the first update: r = 1 and dL/dlogp = -A."""
    logp = log(0.3).requires_grad_()
    loss = mixture_surrogate(logp, logp.detach(), tensor([2.0]), 0.3, 0.0)
    assert exploration_weight(logp, 0.0).item() == 1.0
    assert torch.autograd.grad(loss.sum(), logp)[0].item() == pytest.approx(-2.0)


@pytest.mark.parametrize(
    ("build", "on_demo"),
    [
        (luffy, lambda p: p / (p + 0.1)),
        (rl_plus, lambda p: 4 * p / (1 + 3 * p.detach()) * (1 - p.detach()).sqrt()),
    ],
)
def test_luffy_and_rl_plus_equal_their_definitions(build, on_demo, small_model: Path) -> None:
    """One trace at a time: sums of tokens of all n sequences over n x prompts x longest reply, one
    baseline for all n.
    """
    built = build(TASK, n=4, entropy=0.0)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        assert [len(group.traces) for group in groups] == [4] * SMALL.prompts
        size, total = 4 * SMALL.prompts * SMALL.max_new_tokens, torch.zeros(())
        for group in groups:
            mean = sum(t.scores["reward"] for t in group.traces) / 4
            for t in group.traces:
                logp, advantage = logp_of(models, t, "policy", "demo"), t.scores["reward"] - mean
                ratio = on_demo(logp.exp()) if "demo" in t.tags else (logp - logp.detach()).exp()
                total = total - advantage * ratio.sum() / size
        found = gradients(models, phase.learn, groups, step)
        assert torch.allclose(found, gradient_of(models, total), rtol=1e-5, atol=1e-8)


# ---------------------------------------------------------------------------------------------------------------- grao


def test_grao_weights_by_hand() -> None:
    """Samples 1, 0 and a demonstration of 1, all compared: mean 2/3, std sqrt(2)/3; A = 0.707107, -1.414214 and A_y =
    0.707107.
    (1 + 0.6) A; the demonstration 0.5 A_y + 0.6 * 0.353553 = 0.565685, which is (beta + lam / 2) A_y.
    Samples alone: mean 1/2, std 1/2, A = +-1, A_y = 1: weights +-1.6 and 0.5.
    """
    mine, pull = alignment_weights([1.0, 0.0], 1.0, 0.5, 0.6, True)
    assert mine == pytest.approx([1.6 * 0.707107, -1.6 * 1.414214], abs=1e-5)
    assert pull == pytest.approx(0.565685, abs=1e-6) == pytest.approx((0.5 + 0.6 / 2) * 0.707107, abs=1e-6)
    assert alignment_weights([1.0, 0.0], 1.0, 0.5, 0.6, False) == ([1.6, -1.6], 0.5)
    assert alignment_weights([0.0, 0.0], 0.0, 0.5, 0.6, True) == ([0.0, 0.0], 0.0)


@pytest.mark.parametrize("counts", [True, False])
def test_grao_equals_its_definition(counts: bool, small_model: Path) -> None:
    """J = 1/n sum_i [A_i l(o_i) + beta A_y l(y) + lam A_i (l(o_i) - l(y))] with l the mean log-prob, averaged over
    prompts.
    """
    built = grao(TASK, n=4, demo_counts=counts)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        total = torch.zeros(())
        for group in groups:
            *samples, demo = group.traces
            rewards = [t.scores["reward"] for t in (group.traces if counts else samples)]
            mean = sum(rewards) / len(rewards)
            std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / len(rewards))
            if not std:
                continue
            l_y, a_y = logp_of(models, demo, "demo").mean(), (demo.scores["reward"] - mean) / std
            for t in samples:
                l_i, a_i = logp_of(models, t, "policy").mean(), (t.scores["reward"] - mean) / std
                total = total - (a_i * l_i + 0.5 * a_y * l_y + 0.6 * a_i * (l_i - l_y)) / (4 * len(groups))
        found = gradients(models, phase.learn, groups, step)
        assert torch.allclose(found, gradient_of(models, total), rtol=1e-5, atol=1e-7)


def test_grao_without_imitation_and_contrast_is_reinforce(small_model: Path) -> None:
    """beta = lam = 0, samples alone: REINFORCE with a group baseline, the std with 1/n instead of 1/(n - 1)."""
    found = []
    for built in (
        grao(TASK, n=4, beta=0.0, lam=0.0, demo_counts=False),
        _as_demos(reinforce(seq_mean)),
    ):
        models = doubled(build_cast(built, small_model))
        found += [gradients(models, phase.learn, groups, step) for phase, groups, step in credited(built, models)]
    assert torch.allclose(found[0], math.sqrt(4 / 3) * found[1], rtol=1e-4, atol=1e-7)


# --------------------------------------------------------------------------------------------------- kdrl, opd, minillm


def test_kdrl_without_a_teacher_is_grpo(small_model: Path, other_model: Path) -> None:
    same_gradient(kdrl(TASK, teacher=str(other_model), n=4, beta=0.0, beta_end=0.0), grpo_token_mean(4), small_model)


def test_kdrl_schedule_by_hand(other_model: Path) -> None:
    """beta = max(5e-3 - 5e-5 step, 1e-3)."""
    kd = kdrl(TASK, teacher=str(other_model)).phases[0].learn.terms[1]
    found = [kd.coef(Clock(step, 280)) for step in (0, 40, 80, 200)]  # type: ignore[operator]
    assert found == pytest.approx([5e-3, 3e-3, 1e-3, 1e-3])
    with pytest.raises(ValueError, match="option 'distilled' is 'some'; it must be all, wrong or unsolved"):
        kdrl(TASK, teacher=str(other_model), distilled="some")


def test_kdrl_masks_by_hand() -> None:
    """Group one: right, wrong. Group two: both wrong. Wrong replies: 0 1 | 1 1; replies to unsolved
    prompts: 0 0 | 1 1.
    """
    for rule, expected in ((is_wrong, [0, 1, 1, 1]), (is_unsolved, [0, 0, 1, 1])):
        groups = [
            Group(NO_TASK, [trace(("task", 1), ("policy", 2), scores={"correct": c}) for c in pair])
            for pair in ((1.0, 0.0), (0.0, 0.0))
        ]
        distilled_where(rule, "").call(groups, STEP)
        assert [float(t.streams["kd_weight"][-1]) for g in groups for t in g.traces] == expected


def test_kdrl_tokens_that_are_not_distilled_stay_in_the_average() -> None:
    """log pi - log p_teacher = 2 and 1, the second of weight 0: 2 and 0, one number for each."""
    live = SimpleNamespace(
        logp=tensor([-1.0, -1.0]), teacher=tensor([-3.0, -2.0]), kd_weight=tensor([1.0, 0.0]), note=lambda *_: None
    )
    assert teacher_k2(coef=1.0).loss(live).tolist() == [2.0, 0.0]  # type: ignore[arg-type]


def test_gains_by_hand() -> None:
    """g = 1, 2, 3, gamma 1/2: 1 + 1 + 3/4, 2 + 3/2, 3. Means of the later of 1, 2, 3, 6: 11/3, 9/2, 6, and 0 at the
    last.
    """
    assert discounted_sum(tensor([1.0, 2.0, 3.0]), 0.5).tolist() == [2.75, 3.5, 3.0]
    assert discounted_sum(tensor([1.0, 2.0, 3.0]), 0.0).tolist() == [1.0, 2.0, 3.0]
    assert torch.allclose(mean_of_later(tensor([1.0, 2.0, 3.0, 6.0])), tensor([11 / 3, 4.5, 6.0, 0.0]))
    assert mean_of_later(tensor([5.0])).tolist() == [0.0]


def test_opd_has_the_reverse_kls_gradient_in_expectation() -> None:
    """Summed over the vocabulary with weights pi: -sg[log p_T - log pi] grad log pi is the gradient of
    KL(pi || p_T).
    """
    z, t = tensor([0.3, -0.2, 0.5], requires_grad=True), tensor([0.2, 0.2, 0.6]).log()
    logp = z.log_softmax(0)
    p = logp.exp().detach()
    advantage = (t - logp).detach()
    ratio = (logp - logp.detach()).exp()
    (a,) = torch.autograd.grad((p * -ratio * advantage).sum(), z, retain_graph=True)
    (b,) = torch.autograd.grad((logp.exp() * (logp - t)).sum(), z)
    assert torch.allclose(a, b, atol=1e-6)


def test_opd_moves_like_k2_to_the_teacher(small_model: Path, other_model: Path) -> None:
    """At the first update the gradient of (log pi - log p_T)^2 / 2 is -A grad log pi: KDRL's distillation alone."""
    alone = method(
        draw=prompts(TASK),
        rollout=sample(2),
        score=verify(TASK),
        credit=chain(streams("teacher", logp="teacher"), distilled_where(lambda t, g: True, "all")),
        learn=Learn(teacher_k2(coef=1.0)),
        models=roles(teacher=frozen(str(other_model))),
    )
    same_gradient(opd(TASK, teacher=str(other_model), n=2), alone, small_model, to=1e-5)


def test_a_student_that_is_its_own_teacher_has_nothing_to_learn(small_model: Path) -> None:
    """opd: all advantages are 0 up to rounding. MiniLLM without distillation on the data: half of nothing but SFT is
    left.
    """
    built = opd(TASK, teacher=str(small_model), n=2)
    for _, groups, _ in credited(built, build_cast(built, small_model)):
        for t in (t for group in groups for t in group.traces):
            assert float(t.streams["adv"][t.by("policy")].abs().max()) < 1e-4
    same_gradient(minillm(TASK, teacher=str(small_model), alpha=0.0, kd_share=0.0), sft(TASK), small_model, to=1e-4)


def test_minillms_ratio_is_the_students_share_of_the_mixture(small_model: Path, other_model: Path) -> None:
    """At the first update rho = q / ((1 - alpha) q + alpha p), token by token."""
    built = minillm(TASK, teacher=str(other_model), n=2, alpha=0.3)
    for _, groups, _ in credited(built, build_cast(built, small_model)):
        for sampled in (t for group in groups for t in group.traces if "policy" in t.authors()):
            mask = sampled.by("policy")
            q, p = sampled.streams["student"][mask].exp(), sampled.streams["teacher"][mask].exp()
            rho = (sampled.streams["student"] - sampled.streams["old"])[mask].exp()
            assert torch.allclose(rho, q / (0.7 * q + 0.3 * p), rtol=1e-3)


def test_minillm_equals_its_definition(small_model: Path, other_model: Path) -> None:
    """-mean_t R_t log q_t + mean_t KL(q || p) over sampled tokens, plus half NLL and half KL(p || q) over demonstrated
    ones.
    """
    built = minillm(TASK, teacher=str(other_model), n=2, alpha=0.0)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        traces = [t for group in groups for t in group.traces]
        counts = {author: sum(int(t.by(author).sum()) for t in traces) for author in ("policy", "demo")}
        total = torch.zeros(())
        for t in traces:
            author = "demo" if "demo" in t.tags else "policy"
            mask = [t.by(author)]
            q = models["policy"].outputs([t.tokens], mask, {"logits", "logp"})
            with torch.no_grad():
                p = models["teacher"].outputs([t.tokens], mask, {"logits", "logp"})
            log_q, log_p = q["logits"].log_softmax(-1), p["logits"].log_softmax(-1)
            if author == "demo":
                loss = -0.5 * q["logp"] + 0.5 * (log_p.exp() * (log_p - log_q)).sum(-1)
            else:
                gain = (p["logp"] - q["logp"]).detach()
                later = [float(gain[k + 1 :].mean()) if k + 1 < len(gain) else 0.0 for k in range(len(gain))]
                loss = -tensor(later) * q["logp"] + (log_q.exp() * (log_q - log_p)).sum(-1)
            total = total + loss.sum() / counts[author]
        found = gradients(models, phase.learn, groups, step)
        assert torch.allclose(found, gradient_of(models, total), rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------------------------------------------------------- ghpo


def test_a_hint_is_the_beginning_of_the_solution() -> None:
    """Eight characters: a quarter is two of them, three quarters six. It stands at the end of the last message."""
    task = Task("question", ({"role": "user", "content": "q"},), {"demo": "abcdefgh"}, "k")
    assert with_hint(task, 0.25, "demo").prompt[0]["content"].endswith(":\nab")  # type: ignore[index, union-attr]
    assert with_hint(replace(task, prompt="q"), 0.75, "demo").prompt.endswith(":\nabcdef")  # type: ignore[union-attr]


def _prompts_of(built: Method, small_model: Path, step: int = 0) -> list[tuple[str, str]]:
    """(prompt as the policy reads it, solution), one for each trace."""
    models = build_cast(built, small_model)
    return [
        (models["policy"].chat.text(t.turns[0].tokens), str(group.task.given["demo"]))
        for _, groups, _ in credited(built, models, step=step)
        for group in groups
        for t in group.traces
    ]


def test_ghpo_gives_longer_and_longer_hints_until_a_reply_is_right(small_model: Path) -> None:
    """The replies of the second hint are right: half of the solution is in the prompt, no more."""
    calls = []

    def right_at_last(completions: list[str]) -> list[float]:
        calls.append(len(completions))
        return [float(len(calls) >= 3)] * len(completions)

    task = rewarded(source("sort:1"), right_at_last)
    for prompt, solution in _prompts_of(ghpo(task, n=2, cold_start=0), small_model):
        assert prompt.endswith(solution[: round(0.5 * len(solution))])
    assert calls == [6, 6, 6]


def test_ghpo_keeps_the_last_hint_where_nothing_helps(small_model: Path) -> None:
    never = rewarded(source("sort:1"), lambda completions: [0.0] * len(completions))
    for prompt, solution in _prompts_of(ghpo(never, n=2, cold_start=0), small_model):
        assert prompt.endswith(solution[: round(0.75 * len(solution))])


def test_ghpo_in_its_cold_start_is_grpo(small_model: Path) -> None:
    """Before `cold_start` nobody is given a hint: GRPO with a mean over tokens and 1e-4 beside the
    standard deviation.
    """
    plain = grpo_token_mean(4)
    credit = chain(group_relative(eps=1e-4), behaviour())
    plain = replace(plain, phases=(replace(plain.phases[0], credit=credit),))
    same_gradient(ghpo(TASK, n=4, cold_start=1), _as_demos(plain), small_model)


# -------------------------------------------------------------------------------------------------------------- resets


def test_cuts_by_hand() -> None:
    """Ten tokens, lines ending after the 2nd, 4th and 9th. Four pieces: floors 2, 5, 7; 2 and 5 -> 4 are line ends, in
    5..7 none is.
    Six pieces: 1, 3 -> 2, 5 -> 4, 6, 8. No line at all: the floors themselves."""
    tokens = tensor([1, 0, 1, 0, 1, 1, 1, 1, 0, 1])
    assert line_ends(tokens, CHAT) == [2, 4, 9]  # type: ignore[arg-type]
    assert stage_starts(tokens, CHAT, 4) == [0, 2, 4, 7]  # type: ignore[arg-type]
    assert stage_starts(tokens, CHAT, 6) == [0, 1, 2, 4, 6, 8]  # type: ignore[arg-type]
    assert stage_starts(torch.ones(10, dtype=torch.long), CHAT, 4) == [0, 2, 5, 7]  # type: ignore[arg-type]


def test_cuts_leave_something_to_write() -> None:
    dice, clock = random.Random(0), Clock(0, 10)
    for length in (1, 2, 3, 9):
        tokens = torch.ones(length, dtype=torch.long)
        for cut in (anywhere(), any_stage(6), sliding_stage(6)):
            found = {cut(tokens, CHAT, clock, dice) for _ in range(100)}  # type: ignore[arg-type]
            assert found <= set(range(length))
        assert {anywhere()(tokens, CHAT, clock, dice) for _ in range(200)} == set(range(1, length)) or length == 1  # type: ignore[arg-type]
    assert {anywhere(0.0)(torch.ones(9), CHAT, clock, dice) for _ in range(50)} == {0}  # type: ignore[arg-type]


def test_staged_r3_slides_from_the_end_to_the_prompt() -> None:
    """Three stages over six steps, of nine tokens: 6, 6, 3, 3, 0, 0."""
    cut, tokens = sliding_stage(3), torch.ones(9, dtype=torch.long)
    assert [cut(tokens, CHAT, Clock(step, 6), random.Random(0)) for step in range(6)] == [6, 6, 3, 3, 0, 0]  # type: ignore[arg-type]


@pytest.mark.parametrize("build", [r3, r3_staged, dr_po])
def test_resets_to_the_prompt_are_ppo(build, small_model: Path) -> None:
    """One stage, or no chance of a reset: the same samples, so the same update, as plain sampling. The purpose is part
    of the key.
    """
    built = build(TASK, n=2, **({"chance": 0.0} if build is dr_po else {"stages": 1}))
    (phase,) = built.phases
    cut = anywhere(0.0) if build is dr_po else any_stage(1)
    with_reset = replace(built, phases=(replace(phase, rollout=reset(2, cut, tag="sample")),))
    plain = sample(2)
    plain = replace(plain, writes=plain.writes | {"tokens:demo"})
    same_gradient(with_reset, replace(built, phases=(replace(phase, rollout=plain),)), small_model)


def test_dr_po_trains_the_policy_on_its_own_tokens_and_the_critic_on_all(small_model: Path) -> None:
    built = dr_po(TASK, n=2)
    for _, groups, _ in credited(built, build_cast(built, small_model)):
        for group in groups:
            for t in group.traces:
                assert t.authors() == ("task", "demo", "policy")
                assert torch.equal(t.streams["claim:pg"], t.by("policy"))
                assert torch.equal(t.streams["claim:value"], t.by("policy", "demo"))


def test_rewards_without_a_reference_and_gae_over_two_authors_by_hand() -> None:
    """Score 1 at the last of three tokens by two authors; values 0; gamma 1, lambda 1/2: A = 1/4, 1/2, 1."""
    t = trace(("task", 1), ("demo", 1), ("policy", 2), scores={"reward": 1.0})
    t.streams["value"] = torch.zeros(4)
    group = Group(NO_TASK, [t])
    both = ("policy", "demo")
    chain(token_rewards(kl=None, author=both), gae(lam=0.5, author=both)).call([group], STEP)
    assert t.streams["reward"][1:].tolist() == [0.0, 0.0, 1.0]
    assert t.streams["adv"][1:].tolist() == [0.25, 0.5, 1.0]


def test_whitening_without_centring_keeps_the_mean() -> None:
    """1 and 5: mean 3, std 2; centred -1, 1; otherwise 2, 4."""
    t = trace(("task", 1), ("policy", 2))
    t.streams["reward"] = tensor([math.nan, 1.0, 5.0])
    whiten("reward", centre=False).call([Group(NO_TASK, [t])], STEP)
    assert torch.allclose(t.streams["reward"][1:], tensor([2.0, 4.0]))


def test_partial_reward_by_hand() -> None:
    """Right 1; wrong but answered 0.2; wrong and silent 0."""
    step = SimpleNamespace(models={"policy": SimpleNamespace(chat=CHAT)}, notes=STEP.notes)
    for said, reward, expected in (("answer: 3", 1.0, 1.0), ("answer: 4", 0.0, 0.2), ("hm", 0.0, 0.0)):
        step.models["policy"].chat = SimpleNamespace(text=lambda tokens, said=said: said)
        t = trace(("task", 1), ("policy", 1), scores={"reward": reward})
        partial_for_answering(0.2).call([Group(NO_TASK, [t])], step)
        assert t.scores["shaped"] == expected


# -------------------------------------------------------------------------------------------------------- rlgf, satori


def test_the_guide_begins_and_the_policy_finishes(small_model: Path, other_model: Path) -> None:
    """With chance 1 every reply has both; with chance 0 the guide writes nothing. Only the policy's
    tokens are trained.
    """
    for chance in (1.0, 0.0):
        built = rlgf(TASK, guide=str(other_model), n=2, chance=chance)
        for _, groups, _ in credited(built, build_cast(built, small_model)):
            for t in (t for group in groups for t in group.traces if "demo" not in t.tags):
                assert ("guide" in t.authors()) == (chance == 1.0) or len(t.turns) == 2
                assert torch.equal(t.streams["claim:pg"], t.by("policy"))
                assert torch.equal(t.streams["claim:value"], t.by("policy"))


def test_aggrevated_trains_the_policys_beginning_and_values_the_guides_end(
    small_model: Path, other_model: Path
) -> None:
    built = aggrevated(TASK, guide=str(other_model), n=2)
    for _, groups, _ in credited(built, build_cast(built, small_model)):
        for t in (t for group in groups for t in group.traces if "demo" not in t.tags):
            assert t.turns[-1].author == "guide"
            assert torch.equal(t.streams["claim:pg"], t.by("policy"))
            assert torch.equal(t.streams["claim:value"], t.by("guide"))


@pytest.mark.parametrize("build", [rlgf, aggrevated])
def test_guided_advantages_are_not_whitened(build, small_model: Path, other_model: Path) -> None:
    """Values 0: k tokens before the end, A = 0.9405^k times the score, 0.9405 = gamma lambda = 0.99 x 0.95."""
    built = build(TASK, guide=str(other_model), n=2)
    models = build_cast(built, small_model)
    with torch.no_grad():
        models["critic"].module.score.weight.zero_()
    authors = ("policy",) if build is rlgf else ("policy", "guide")
    for _, groups, _ in credited(built, models):
        replies = [t for group in groups for t in group.traces if "demo" not in t.tags]
        assert any(t.scores["reward"] > 0 for t in replies)
        for t in replies:
            found = t.streams["adv"][t.by(*authors)]
            wanted = t.scores["reward"] * 0.9405 ** torch.arange(len(found) - 1, -1, -1)
            assert torch.allclose(found, wanted, atol=1e-5)


def test_satori_reward_by_hand() -> None:
    """-1 or 0 for the rule; 0.5 more for a wrong reply made right, 0.5 less for a right one made wrong; 0.3 from a
    model.
    """
    for tags, correct, expected in (
        ("sample", 1.0, 0.0),
        ("sample", 0.0, -1.0),
        ("from wrong", 1.0, 0.5),
        ("from wrong", 0.0, -1.0),
        ("from right", 0.0, -1.5),
        ("from right", 1.0, 0.0),
    ):
        t = trace(("task", 1), ("policy", 1), tags=frozenset({tags}), scores={"correct": correct, "preference": 0.3})
        reflection_reward(0.5).call([Group(NO_TASK, [t])], STEP)
        assert t.scores["shaped"] == expected
        reflection_reward(0.5, "preference").call([Group(NO_TASK, [t])], STEP)
        assert t.scores["shaped"] == pytest.approx(expected + 0.3)


def test_satori_squashes_a_reward_models_scores_by_hand() -> None:
    """Scores 1 and 3: mean 2, deviation sqrt(2): sigmoid(-+1/sqrt(2)). Then 5 and 5: of all four the mean is 7/2, the
    deviation sqrt(11/3), so sigmoid(1.5 / sqrt(11/3)). With a reward model the method has one more member.
    """
    traces = [trace(("task", 1), ("policy", 1)) for _ in range(2)]
    rm: Any = SimpleNamespace(
        streams=lambda *_: [{"score": tensor([math.nan, 1.0])}, {"score": tensor([math.nan, 3.0])}],
        chat=SimpleNamespace(tail=None, padding=None),
    )
    step = SimpleNamespace(models=Models({"rm": rm}), settings=SMALL)
    part = squashed_model(Moments())
    part.call([Group(NO_TASK, traces)], step)  # type: ignore[arg-type]
    assert [t.scores["preference"] for t in traces] == pytest.approx([0.330238, 0.669762], abs=1e-6)
    rm.streams = lambda *_: [{"score": tensor([math.nan, 5.0])}] * 2
    part.call([Group(NO_TASK, traces)], step)  # type: ignore[arg-type]
    assert [t.scores["preference"] for t in traces] == pytest.approx([0.686402] * 2, abs=1e-6)
    assert satori(TASK).models["critic"].lr == pytest.approx(5e-6 / 2e-7)
    assert set(satori(TASK, reward_model="some/directory").models) == {"policy", "critic", "rm"}


def test_satori_restarts_inside_a_right_and_a_wrong_reply(small_model: Path) -> None:
    built = satori(TASK, n=4, back=1, cue="check")
    models = build_cast(built, small_model)
    seen = 0
    for _, groups, _ in credited(built, models):
        for group in groups:
            fresh = [t for t in group.traces if "sample" in t.tags]
            assert len(fresh) == 4
            for t in group.traces[4:]:
                seen += 1
                past, cue, said = t.turns[1:]
                right = "from right" in t.tags
                (first,) = [f for f in fresh if bool(f.scores["correct"]) == right and len(f.turns[-1]) > 1][:1]
                assert torch.equal(past.tokens, first.turns[-1].tokens[: len(past)]) and 0 < len(past) < len(first)
                assert models["policy"].chat.text(cue.tokens).strip("\n") == "check"
                assert torch.equal(t.streams["claim:pg"], t.by("policy")) and said.author == "policy"
    assert seen >= 3


# ---------------------------------------------------------------------------------------------------------------- LOLS


def steps_of(built: Method, small_model: Path, steps: int = 3) -> list[dict[str, float]]:
    return [report.metrics for report in loop(built, build_cast(built, small_model), SMALL, steps=steps)]


def test_lols_is_one_of_its_two_algorithms_in_each_step(small_model: Path, other_model: Path) -> None:
    """share = 1 is PPO++ step by step, share = 0 AggreVaTeD; in between both have their turns."""
    guide = str(other_model)
    first = steps_of(rlgf(TASK, guide=guide, updates=1), small_model)
    assert steps_of(lols(TASK, guide=guide, updates=1, share=1.0), small_model) == first
    assert steps_of(d2lols(TASK, guide=guide, updates=1, switch=0), small_model) == first
    other = steps_of(aggrevated(TASK, guide=guide, updates=1), small_model)
    named = [
        {k.replace("guide_critic", "critic"): v for k, v in row.items()}
        for row in steps_of(lols(TASK, guide=guide, updates=1, share=0.0), small_model)
    ]
    assert named == other
    turns = [round(lols(TASK, guide=guide).phases[0].times(Clock(step, 100))) for step in range(100)]
    assert 70 < sum(turns) < 90
    with pytest.raises(ValueError, match="option 'share' is 2; it must be between 0 and 1"):
        lols(TASK, guide=guide, share=2)


def test_d2lols_switches_once(other_model: Path) -> None:
    ppo_pp, aggrevate = d2lols(TASK, guide=str(other_model), switch=3).phases
    assert [ppo_pp.times(Clock(step, 6)) for step in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [aggrevate.times(Clock(step, 6)) for step in range(6)] == [1, 1, 1, 0, 0, 0]
