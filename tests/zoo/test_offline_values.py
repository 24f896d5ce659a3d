"""Values learned from fixed data: numbers derived by hand, and what each method becomes without its idea."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, credited, doubled
from test_offline import live
from test_values import ASKED, STEP, TASK, assert_close, of_policy, trace
from torch import tensor

import burnish
from burnish.core.parts import chain
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit.gae import token_rewards
from burnish.tasks.table import source
from burnish.zoo.dvpo import dvpo, global_value_model, lambda_advantages
from burnish.zoo.oreo import actions, oreo, path_policy, path_policy_error, path_value, path_value_error, to_go

# ---------------------------------------------------------------------------------------------------------------- DVPO


def test_global_value_targets_with_lambda_one_are_the_outcomes(small_model: Path) -> None:
    """No discount and no penalty: every token of a preferred reply is to say 1, every token of the other -1."""
    built = global_value_model(source("sort"), lam=1.0)
    for _, groups, _ in credited(built, build_cast(built, small_model)):
        for group in groups:
            for t, want in zip(group.traces, (1.0, -1.0), strict=True):
                assert torch.allclose(t.streams["returns"][t.by("demo")], torch.tensor(want), atol=1e-5)
                assert t.streams["claim:end"].nonzero().tolist() == [[len(t) - 1]]
                assert float(t.streams["outcome"][-1]) == want


def test_dvpo_advantages_are_differences_of_the_frozen_values(small_model: Path) -> None:
    """kl = 0, lambda = 0: A_t = V(s_{t+1}) - V(s_t), with V of the finished reply after the last token
    (then whitened).
    """
    built = dvpo(source("sort"), n=4, kl=0.0, lam=0.0)
    main = replace(built, phases=built.phases[1:])
    models = build_cast(main, small_model)
    for _, groups, _ in credited(main, models):
        traces = [t for g in groups for t in g.traces]
        raw = []
        for t in traces:
            mask = t.by("policy")
            out = models["value"].streams([t], [mask], {"value", "score"}, 10**6)[0]
            raw.append(torch.cat([out["value"][mask][1:], out["score"][-1:]]) - out["value"][mask])
            assert t.scores["reward"] == pytest.approx(float(out["score"][-1]), abs=1e-6)
        flat = torch.cat(raw)
        for t, mine in zip(traces, raw, strict=True):
            want = (mine - flat.mean()) / (flat.std(unbiased=False) + 1e-8)
            assert torch.allclose(t.streams["adv"][t.by("policy")], want, atol=1e-3)


@pytest.mark.parametrize(
    ("scale", "kl", "raw"),
    [
        (1.0, 0.2, (0.05, -0.5, 0.75)),
        (2.0, 0.4, (0.1, -1.0, 1.5)),  # twice the kl: the same advantages
        (2.0, 0.2, (0.3, -1.0, 1.5)),  # the same kl: others
    ],
)
def test_the_kl_of_dvpo_is_weighed_against_the_scale_of_the_values(
    scale: float, kl: float, raw: tuple[float, ...]
) -> None:
    """V = 1/2, 3/4, 1/4, at the end 1, or 2 V - 1; log pi/ref = 1, 0, 0; lambda = 0: A = V_next - V - kl log pi/ref."""
    values = scale * tensor([0.5, 0.75, 0.25, 1.0]) - (scale - 1)
    t = trace(("task", 1), ("policy", 3), scores={"reward": float(values[3])})
    t.streams |= {"value": torch.cat([tensor([0.0]), values[:3]]), "ref": tensor([0.0, -2.0, -1.0, -1.0])}
    t.streams["old"] = torch.full((4,), -1.0)
    chain(token_rewards(kl=kl), lambda_advantages(lam=0.0)).call([Group(ASKED, [t])], STEP)
    assert t.streams["adv"][1:].tolist() == pytest.approx(raw)


def test_dvpo_takes_the_directory_that_global_value_model_saved(small_model: Path, tmp_path: Path) -> None:
    run = {"model": str(small_model), "task": "sort", "steps": 1, "prompts": 2, "max_new_tokens": 6, "device": "cpu"}
    burnish.train("global_value_model", out=str(tmp_path / "value"), eval_tasks=2, **run)
    burnish.train(
        "dvpo", out=str(tmp_path / "policy"), eval_tasks=2, n=2, value_model=str(tmp_path / "value" / "model"), **run
    )
    built = dvpo(source("sort"), value_model=str(tmp_path / "value" / "model"))
    assert len(built.phases) == 1 and built.models["value"].liveness == "frozen"
    with pytest.raises(ValueError, match="option 'value_steps' is 0; it must be at least 1"):
        dvpo(source("sort"), value_steps=0)


# ---------------------------------------------------------------------------------------------------------------- OREO


def test_path_consistency_by_hand() -> None:
    """Rows of 2 and 1 tokens, lr = .1 .2 | -.3: to go .3 .2 | -.3. V = .5, R = 1, beta 2:
    value: (.5 - 1 + .6)^2 = .01, (.5 - 1 + .4)^2 = .01, (.5 - 1 - .6)^2 = 1.21; the policy's numbers are the same ones,
    with gradient 2 beta (...) = .4, -.4, -4.4 through lr_t alone.
    """
    lr = tensor([0.1, 0.2, -0.3], requires_grad=True)
    ahead = to_go(lr, [2, 1])
    assert torch.allclose(ahead, tensor([0.3, 0.2, -0.3]))
    v, r = torch.full((3,), 0.5, requires_grad=True), torch.ones(3)
    want = tensor([0.01, 0.01, 1.21])
    assert torch.allclose(path_value_error(v, r, ahead, 2.0), want, atol=1e-6)
    policy = path_policy_error(lr, ahead, v, r, 2.0)
    assert torch.allclose(policy, want, atol=1e-6)
    policy.sum().backward()
    assert torch.allclose(lr.grad, tensor([0.4, -0.4, -4.4]), atol=1e-5)
    assert v.grad is None


def test_path_value_with_beta_zero_is_the_squared_error() -> None:
    v, r = tensor([0.2, 0.7]), tensor([1.0, 0.0])
    assert torch.equal(path_value_error(v, r, tensor([9.0, 9.0]), 0.0), (v - r).square())


def test_oreo_at_the_reference_is_a_policy_gradient_with_advantage_r_minus_v(small_model: Path) -> None:
    """pi = ref: lr = 0 and the exact KL is flat, so that the gradient is -2 beta (R - V_t) grad log pi_t, mean of
    means.
    """
    built = oreo(TASK, n=4)
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        found = of_policy(models, groups, phase.learn, step)
        models["policy"].optimiser.zero()
        traces = [t for g in groups for t in g.traces]
        for t in traces:
            mask = t.by("ref")
            value = models["critic"].outputs([t.tokens], [mask], {"value"})["value"].detach()
            logp = models["policy"].outputs([t.tokens], [mask], {"logp"})["logp"]
            (-2 * 0.03 * ((t.scores["reward"] - value) * logp).mean() / len(traces)).backward()
        assert_close(found, torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()]), to=1e-4)


def test_oreo_on_responses_is_one_regression_a_reply(small_model: Path) -> None:
    """One action: (V_0 - R + beta lr(y))^2, whose gradient at pi = ref is -2 beta (R - V_0) grad log pi(y), a mean over
    replies.
    """
    built = oreo(TASK, n=4, level="response")
    models = doubled(build_cast(built, small_model))
    for phase, groups, step in credited(built, models):
        found = of_policy(models, groups, phase.learn, step)
        models["policy"].optimiser.zero()
        traces = [t for g in groups for t in g.traces]
        for t in traces:
            mask = t.by("ref")
            value = models["critic"].outputs([t.tokens], [mask], {"value"})["value"].detach()[0]
            logp = models["policy"].outputs([t.tokens], [mask], {"logp"})["logp"].sum()
            (-2 * 0.03 * (t.scores["reward"] - value) * logp / len(traces)).backward()
        assert_close(found, torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()]), to=1e-4)


def test_steps_are_actions_by_hand() -> None:
    """Two rows, tokens 3 + 1; the first row's actions are its tokens 0-1 and 2. beta 1, ref 0, pi's log-probs -1 -2 -3
    | -1.

    lr of the actions -3, -3 | -1, to go -6, -3 | -1;  V 1 and 2 at the actions' first tokens (9 elsewhere is not read)
    | 0; R 1 | 0
    policy errors (1 - 1 - 6)^2 = 36, (2 - 1 - 3)^2 = 4, mean 20 | (0 - 0 - 1)^2 = 1;  the value's are the same numbers
    """
    rows, logp, value = [0, 0, 0, 1], tensor([-1.0, -2, -3, -1]), tensor([1.0, 9, 2, 0])
    streams = {"ref": torch.zeros(4), "returns": tensor([1.0, 1, 1, 0]), "action": tensor([1, 1, 2, 1])}
    outputs = {"logp": logp, "entropy": torch.zeros(4), "critic.value": value}
    assert path_policy(1.0).loss(live(rows, outputs, **streams)).tolist() == [20.0, 1.0]
    outputs = {"value": value, "policy.logp": logp}
    assert path_value(1.0).loss(live(rows, outputs, **streams)).tolist() == [20.0, 1.0]


def test_lines_are_steps(small_model: Path) -> None:
    built = oreo(TASK, n=2, level="step")
    models = build_cast(built, small_model)
    chat = models["policy"].chat
    asked = Turn(tensor([5, 6]), "task")
    trace = Trace((asked, Turn(chat.reply("ab\ncd"), "ref", parent=asked)))
    actions("step", author="ref").call(
        [Group(Task("question", "q", {}, "q"), [trace])], Step(Clock(0, 1), models, SMALL)
    )
    assert trace.streams["action"].tolist() == [0, 0, 1, 1, 1, 2, 2, 2]  # the newline ends its step
    with pytest.raises(ValueError, match="option 'level' is 'word'; it must be token, step or response"):
        oreo(TASK, level="word")
