"""Imitation: token weights, soft Q-values, classes, hindsight, feedback and injected behaviours, by hand and in their
limits.
"""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import torch
from conftest import build_cast, credited, doubled
from test_credit import STEP, trace
from test_learn import TASK, gradients, same_gradient
from test_offline import live
from torch import Tensor, tensor

from burnish.core.method import Method, method
from burnish.core.roles import roles
from burnish.core.step import Notes
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit.claims import claim
from burnish.draw.tasks import pairs, prompts
from burnish.learn import maths
from burnish.learn.learn import Learn
from burnish.learn.maths.soft_q import next_values
from burnish.learn.maths.token_weights import probability_weight, smoothed_nll
from burnish.learn.terms import imitate
from burnish.learn.terms.self_imitation import imitate_weighted
from burnish.methods.decoding import best_of_n_distill
from burnish.methods.imitation import dft, sft
from burnish.methods.self_imitation import raft, rejection_sampling
from burnish.rollout.conditioned import conditioned, under
from burnish.rollout.given import given
from burnish.rollout.sample import sample
from burnish.select.verified import keep_verified
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo.behavior_injection import behavior_injection, with_behaviours
from burnish.zoo.c_rlft import c_rlft, class_weights
from burnish.zoo.hir import contrast, hir, piece_of, relabel
from burnish.zoo.iqlearn_lm import implied_reward, iqlearn, soft_q_penalty
from burnish.zoo.leti import leti, with_feedback
from burnish.zoo.superhf import superhf

RIGHT = rewarded(source("sort"), lambda completions: [1.0] * len(completions))


def group_of(*replies: tuple[list[int], float], prompt: str = "q") -> Group:
    """A group of sampled replies (tokens, reward) to one prompt of two tokens."""
    asked = Turn(tensor([1, 2]), "task")
    traces = [
        Trace((asked, Turn(tensor(tokens), "policy", parent=asked)), i, {"reward": reward}, tags=frozenset({"sample"}))
        for i, (tokens, reward) in enumerate(replies)
    ]
    return Group(Task("question", prompt, {}, "q"), traces)


def reader(context: int = 100) -> SimpleNamespace:
    """A member whose tokens are the letters of a text, numbered by the alphabet's codes."""
    chat = SimpleNamespace(
        prompt=lambda task: tensor([ord(letter) for letter in task.prompt]),
    )
    return SimpleNamespace(chat=chat, context=context)


def at_step(model: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(models={"policy": model}, clock=Clock(0, 10), notes=Notes())


def said(turn: Turn) -> str:
    return "".join(chr(token) for token in turn.tokens.tolist())


# ------------------------------------------------------------------------------------------------------------------ DFT


def test_dft_by_hand() -> None:
    """p = 0.5, 0.25: -p log p = 0.5 log 2, 0.25 log 4; the gradient by log p is -p, that of -p itself."""
    logp = tensor([0.5, 0.25]).log().requires_grad_()
    loss = maths.nll(logp, probability_weight(logp))
    assert loss.tolist() == pytest.approx([0.5 * math.log(2), 0.25 * math.log(4)])
    loss.sum().backward()
    assert logp.grad.tolist() == pytest.approx([-0.5, -0.25])


def test_dft_is_the_gradient_of_minus_the_mean_probability(small_model: Path) -> None:
    built = dft(TASK)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        found = gradients(models, phase.learn, groups, step)
        models["policy"].optimiser.zero()
        traces = [t for g in groups for t in g.traces]
        tokens = sum(int(t.by("demo").sum()) for t in traces)
        for t in traces:
            (-logp_of(models, t, t.by("demo")).exp().sum() / tokens).backward()
        assert torch.allclose(found, policy_gradient(models), rtol=1e-9, atol=1e-12)


def logp_of(models, one: Trace, mask: Tensor) -> Tensor:
    return models["policy"].outputs([one.tokens], [mask], {"logp"})["logp"]


def policy_gradient(models) -> Tensor:
    return torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()])


# -------------------------------------------------------------------------------------------------------------- IQLearn


def test_next_values_by_hand() -> None:
    """Rows 0, 0, 1, 1: each token is followed by the next of its row, a row's last by 0."""
    assert next_values(tensor([1.0, 2.0, 3.0, 4.0]), tensor([0, 0, 1, 1])).tolist() == [2.0, 0.0, 4.0, 0.0]


def test_implied_rewards_of_a_reply_telescope() -> None:
    """gamma = 1: sum r_t = sum log pi_t + V_0."""
    logp, value = tensor([-1.0, -0.5, -2.0]), tensor([3.0, 1.0, 7.0])
    rewards = implied_reward(logp, value, next_values(value, torch.zeros(3, dtype=torch.long)), 1.0)
    assert rewards.sum().item() == pytest.approx(-3.5 + 3.0)


def test_soft_q_penalty_by_hand() -> None:
    """Logits (1, 2) and (0, 3), the second and then the first token chosen: Q = 2, 0; V_1 = log(1 + e^3); gamma 0.5:
    r_0 = 2 - 0.5 log(1 + e^3), r_1 = 0 - 0. The loss is their squares."""
    logits = tensor([[1.0, 2.0], [0.0, 3.0]])
    chosen = torch.log_softmax(logits, -1)[[0, 1], [1, 0]]
    found = soft_q_penalty(0.5, coef=1.0).loss(live([0, 0], {"logits": logits, "logp": chosen}))
    assert found.tolist() == pytest.approx([(2 - 0.5 * math.log(1 + math.e**3)) ** 2, 0.0], abs=1e-6)


def test_iqlearn_without_the_penalty_is_sft(small_model: Path) -> None:
    same_gradient(iqlearn(TASK, lam=0.0), sft(TASK), small_model)


# --------------------------------------------------------------------------------------------------------------- C-RLFT


def test_class_weights_by_hand() -> None:
    """3 chosen tokens at 1 and 2 rejected at 0.1: the sum is 3.2 over 5 tokens, so the weights are 5/3.2 and 0.5/3.2.
    With losses 1 and 2 the mean is (3 x 1 + 0.2 x 2) / 3.2, the weighted mean."""
    chosen = trace(("task", 2), ("demo", 3), tags=frozenset({"chosen"}))
    rejected = trace(("task", 1), ("demo", 2), tags=frozenset({"rejected"}))
    group = Group(Task("pair", "q", {}, "q"), [chosen, rejected])
    class_weights({"chosen": 1.0, "rejected": 0.1}).call([group], STEP)
    a, b = chosen.streams["weight"][0].item(), rejected.streams["weight"][0].item()
    assert (a, b) == pytest.approx((5 / 3.2, 0.5 / 3.2))
    outputs = {"logp": tensor([-1.0] * 3 + [-2.0] * 2)}
    loss = imitate_weighted().loss(live([0, 0, 0, 1, 1], outputs, weight=tensor([a] * 3 + [b] * 2)))
    assert loss.mean().item() == pytest.approx(3.4 / 3.2)


def test_c_rlft_without_the_other_class_is_sft(small_model: Path) -> None:
    """The chosen reply is the task's demonstration; a class of weight 0 leaves numerator and denominator."""
    same_gradient(c_rlft(TASK, other_weight=0.0), sft(TASK), small_model, to=1e-6)


def test_c_rlft_with_equal_weights_and_no_conditions_is_sft_on_both(small_model: Path) -> None:
    plain = method(
        draw=pairs(TASK),
        rollout=given("chosen", "rejected"),
        credit=claim("sft", "demo"),
        learn=Learn(imitate()),
        models=roles(),
    )
    same_gradient(c_rlft(TASK, other_weight=1.0, other=""), plain, small_model, to=1e-6)


def test_a_condition_stands_before_the_last_message() -> None:
    asked = Task("question", ({"role": "system", "content": "s"}, {"role": "user", "content": "q"}), {}, "k")
    assert conditioned(asked, "[w]").prompt == (
        {"role": "system", "content": "s"},
        {"role": "user", "content": "[w]\nq"},
    )
    assert conditioned(Task("question", "q", {}, "k"), "[w]").prompt == "[w]\nq"
    assert conditioned(asked, "") is asked


def test_a_rollout_under_a_condition_keeps_the_tasks(small_model: Path) -> None:
    built = c_rlft(TASK)
    for _, groups, step in credited(built, build_cast(built, small_model)):
        for group in groups:
            chat = step.models["policy"].chat
            chosen, rejected = group.traces
            assert "[other]" not in chat.text(chosen.turns[0].tokens)
            assert "[other]" in chat.text(rejected.turns[0].tokens)
            assert "[other]" not in str(group.task.prompt)
    assert under("", sample(2)).name == "sample(2)"


# ------------------------------------------------------------------------------------------- kept and best of the
# samples


def test_keep_verified_by_hand() -> None:
    """Wrong ones go, the second [5] is the first again, and of the three that are left two are kept."""
    group = group_of(([4], 0.0), ([5], 1.0), ([6], 1.0), ([5], 1.0), ([7], 1.0))
    wrong = group_of(([4], 0.5))
    kept = keep_verified(2).call([group, wrong], at_step(reader()))
    assert [t.turns[-1].tokens.tolist() for g in kept for t in g.traces] == [[5], [6]]


def imitating(task, n: int) -> Method:
    """SFT on all samples."""
    return method(draw=prompts(task), rollout=sample(n), learn=Learn(imitate()), models=roles())


def test_rejection_sampling_that_rejects_nothing_is_sft_on_the_samples(small_model: Path) -> None:
    same_gradient(rejection_sampling(RIGHT, n=3), imitating(RIGHT, 3), small_model)


def test_rejection_sampling_is_reinforce_with_a_reward_of_zero_or_one(small_model: Path) -> None:
    """The gradient of SFT on the kept is sum of r grad log pi over the tokens kept: r in {0, 1} and no baseline."""
    built = rejection_sampling(TASK, n=4)
    models = doubled(build_cast(built, small_model))
    everything = imitating(TASK, 4)
    for phase, groups, step in credited(built, models):
        found = gradients(models, phase.learn, groups, step)
        models["policy"].optimiser.zero()
        every = [t for _, gs, _ in credited(everything, models) for g in gs for t in g.traces]
        texts = [step.models["policy"].chat.text(t.turns[-1].tokens) for t in every]
        verdicts = TASK.verdicts([TASK.task("train", 0)] * len(texts), texts)
        right = [t for t, verdict in zip(every, verdicts, strict=True) if verdict.correct]
        tokens = sum(int(t.by("policy").sum()) for t in right)
        for t in right:
            (-logp_of(models, t, t.by("policy")).sum() / tokens).backward()
        assert 0 < len(right) < len(every)
        assert torch.allclose(found, policy_gradient(models), rtol=1e-9, atol=1e-12)


def test_raft_is_best_of_n_distillation(small_model: Path) -> None:
    same_gradient(raft(TASK, n=4), best_of_n_distill(TASK, n=4), small_model)


def test_superhf_without_its_prior_is_raft(small_model: Path) -> None:
    same_gradient(superhf(TASK, n=4, beta=0.0), raft(TASK, n=4), small_model)


def test_the_prior_of_superhf_pulls_nothing_at_the_start_and_something_later(small_model: Path) -> None:
    """KL(p_0 || pi) has its minimum 0 at pi = p_0."""
    built = superhf(TASK, n=4)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        prior = Learn(*(term for term in phase.learn.terms if term.name == "prior"))
        assert float(gradients(models, prior, groups, step).norm()) < 1e-9
        with torch.no_grad():
            for p in models["policy"].module.parameters():
                p.mul_(1.1)
        assert float(gradients(models, prior, groups, step).norm()) > 1e-4


# ------------------------------------------------------------------------------------------------------------------ HIR


def test_smoothed_nll_by_hand() -> None:
    """p = 1/2, 1/4, 1/4, the first chosen, smoothing 0.2: 0.8 log 2 + 0.2 (log 2 + 2 log 4)/3 = (0.8 + 1/3) log 2."""
    logits = tensor([[0.5, 0.25, 0.25]]).log()
    assert smoothed_nll(logits, logits[:, 0], 0.2).item() == pytest.approx((0.8 + 1 / 3) * math.log(2))
    assert smoothed_nll(logits, logits[:, 0], 0.0).item() == pytest.approx(math.log(2))


def test_contrast_by_hand() -> None:
    """Geometric means: row 0 sqrt(0.5 x 0.5) = 0.5, row 1 sqrt(0.125 x 0.5) = 0.25. P = 2/3; smoothing 0.2."""
    seen = live([0, 0, 1, 1], {"logp": tensor([0.5, 0.5, 0.125, 0.5]).log()})
    seen.pairs = tensor([[0, 1]])
    assert contrast(0.2).loss(seen).item() == pytest.approx(-0.8 * math.log(2 / 3) - 0.2 * math.log(1 / 3))


def test_relabel_by_hand() -> None:
    """The right reply stands under R first, the wrong one under W first; a reply of three tokens is taken whole."""
    group = group_of(([7, 8, 9], 1.0), ([5, 6], 0.0))
    (told,) = relabel("R", "W").call([group], at_step(reader()))
    assert [said(t.turns[0]) for t in told.traces] == ["R\nq", "W\nq", "W\nq", "R\nq"]
    assert [t.turns[-1].tokens.tolist() for t in told.traces] == [[7, 8, 9]] * 2 + [[5, 6]] * 2
    assert told.pairs == [(0, 1), (2, 3)]
    assert ["own" in t.tags for t in told.traces] == [True, False, True, False]
    assert all(t.turns[-1].author == "hindsight" for t in told.traces)


def test_relabel_keeps_what_stands_before_the_piece_as_context() -> None:
    group = group_of(*(([*range(10, 30)], 1.0) for _ in range(20)))
    (told,) = relabel("R", "W").call([group], at_step(reader()))
    starts = set()
    for one in told.traces:
        reply = torch.cat([turn.tokens for turn in one.turns[1:]]).tolist()
        assert reply == list(range(10, 10 + len(reply)))
        starts.add(len(reply) - len(one.turns[-1]))
    assert len(starts) > 5
    cut = relabel("R", "W").call([group_of(([*range(10, 30)], 1.0))], at_step(reader(context=8)))
    assert all(len(t) <= 8 for g in cut for t in g.traces)


def test_pieces_lie_inside_the_reply() -> None:
    for length in (1, 3, 4, 5, 17):
        for k in range(50):
            start, end = piece_of(length, Random(k))
            assert 0 <= start < end <= length
    assert piece_of(3, Random(0)) == (0, 3)


def test_hir_with_everything_off_is_imitation_of_the_pieces(small_model: Path) -> None:
    """No smoothing, no contrast, no bonus: -log pi of each piece under its own instruction, mean of token means."""
    built = hir(TASK, n=3, smoothing=0.0, contrastive=0.0, entropy=0.0)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        found = gradients(models, phase.learn, groups, step)
        models["policy"].optimiser.zero()
        own = [t for g in groups for t in g.traces if "own" in t.tags]
        for t in own:
            (-logp_of(models, t, t.by("hindsight")).mean() / len(own)).backward()
        assert torch.allclose(found, policy_gradient(models), rtol=1e-9, atol=1e-12)


# ----------------------------------------------------------------------------------------------------------------- LeTI


def test_with_feedback_by_hand() -> None:
    """A reply that passes stands under G alone; one that fails under B and the reason, where there is one."""
    group = group_of(([7, 8], 1.0), ([9], 0.0), ([5], 0.0))
    group.traces[1].note["why"] = "no"
    (told,) = with_feedback("G", "B").call([group], at_step(reader()))
    assert [[(turn.author, said(turn)) for turn in t.turns[:2]] for t in told.traces] == [
        [("start", "G"), ("task", "\nq")],
        [("start", "B"), ("task", "\nno\nq")],
        [("start", "B"), ("task", "\nq")],
    ]
    assert [t.turns[2].tokens.tolist() for t in told.traces] == [[7, 8], [9], [5]]


def test_a_text_is_cut_where_the_context_ends() -> None:
    """The prompt "B", a line end, "no", a line end and "q" are 6 tokens: a context of 7 holds one of the reply's two,
    of 6 none.
    """
    for context, lengths in ((7, [7]), (6, [])):
        group = group_of(([7, 8], 0.0))
        group.traces[0].note["why"] = "no"
        told = with_feedback("G", "B").call([group], at_step(reader(context=context)))
        assert [len(t) for g in told for t in g.traces] == lengths


def test_leti_where_all_pass_models_question_and_reply(small_model: Path) -> None:
    """Nothing fails, so nothing is said: -log pi of every token but the first, mean over all."""
    built, plain = leti(RIGHT, n=2), imitating(RIGHT, 2)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        found = gradients(models, phase.learn, groups, step)
        models["policy"].optimiser.zero()
        traces = [t for _, gs, _ in credited(plain, models) for g in gs for t in g.traces]
        tokens = sum(len(t) - 1 for t in traces)
        for t in traces:
            (-logp_of(models, t, torch.arange(len(t)) > 0).sum() / tokens).backward()
        assert torch.allclose(found, policy_gradient(models), rtol=1e-9, atol=1e-12)


# --------------------------------------------------------------------------------------------------- injected
# behaviours


def test_behaviours_by_hand() -> None:
    """With chance 1 every line but the last looks ahead, and every line but the first gathers what is known."""
    assert with_behaviours("7-3=4\nanswer: 4", 1.0, Random(0)).splitlines() == [
        "let's solve answer, wait, answer cannot be solved yet, let's go back",
        "7-3=4",
        "let's solve answer, since 7-3=4",
        "answer: 4",
    ]


def test_a_demonstration_without_injection_is_itself_and_its_lines_always_stay() -> None:
    demo = "10-7=3\n7-3-1=3\nanswer: 33"
    assert with_behaviours(demo, 0.0, Random(0)) == demo
    for k in range(20):
        lines = with_behaviours(demo, 0.5, Random(k)).splitlines()
        assert [line for line in lines if not line.startswith("let's")] == demo.splitlines()
        assert lines[-1] == "answer: 33"


def test_behavior_injection_with_chance_zero_is_sft(small_model: Path) -> None:
    same_gradient(behavior_injection(TASK, chance=0.0), sft(TASK), small_model)


def test_injected_demonstrations_still_pass_the_verifier() -> None:
    for name in ("add", "multiply", "countdown", "logic", "path"):
        tasks = source(name)
        for index in range(5):
            task = tasks.task("train", index)
            richer = with_behaviours(task.given["demo"], 1.0, Random(index))
            assert tasks.verify(task, richer).correct, richer


@pytest.mark.parametrize("build", [dft, iqlearn, c_rlft])
def test_what_learns_from_data_samples_nothing(build) -> None:
    assert not any(name.startswith("mu:") for phase in build(TASK).phases for name in phase.rollout.writes)
