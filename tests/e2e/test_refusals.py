"""NaN and Inf in rewards, losses, gradients and weights: the update is rejected and its batch is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, build_method, credited
from guards import guards
from runs import COIN, function, go, same_run

import burnish
from burnish.checkpoint.diff import log_rows
from burnish.core.loop import Report
from burnish.core.types import Group
from burnish.core.types_json import group_from_record
from burnish.learn.learn import Learn, learn
from burnish.run.memory import LEAST, RISES, WINDOW, growing, resident_mb
from burnish.run.rejected_updates import IN_A_ROW
from burnish.run.train import Observer, Run

pytestmark = guards("core/rejected.py", "core/loop.py", "run")

NAN_AT = (
    COIN
    + """
calls = 0

def f(completions):  # the third number of the calls named in BAD is none
    global calls
    scores = coin(completions)
    if calls in BAD:
        scores[2] = WHAT
    calls += 1
    return scores
"""
)


class Holding(Observer):
    """Keeps the models, copies of their weights after every step, and the warnings."""

    def __init__(self, change: Callable[[Run], object] = lambda run: None) -> None:
        self.change, self.said = change, []

    def started(self, run: Run) -> None:
        self.change(run)
        self.run, self.weights = run, [self.copy(run)]

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        self.weights.append(self.copy(self.run))

    def warned(self, said: str) -> None:
        self.said.append(said)

    @staticmethod
    def copy(run: Run) -> dict[str, torch.Tensor]:
        return {f"{m.name}/{name}": p.detach().clone() for m in run.models for name, p in m.module.named_parameters()}

    def moved(self, step: int) -> bool:
        """Whether a step changed any weight; NaN is equal to itself here."""
        before, after = self.weights[step], self.weights[step + 1]
        return any(not torch.equal(before[n].view(torch.int32), after[n].view(torch.int32)) for n in before)


def bad_reward(tmp_path: Path, bad: tuple[int, ...], what: str = "float('nan')") -> str:
    code = NAN_AT.replace("BAD", repr(bad)).replace("WHAT", what)
    return function(tmp_path / f"r{len(list(tmp_path.iterdir()))}.py", code, "f")


@pytest.mark.parametrize("what", ["float('nan')", "float('-inf')"])
@pytest.mark.parametrize("method", ["grpo", "reinforce_running", "ppo_max"])
def test_a_reward_that_is_none_costs_one_step(method: str, what: str, small_model: Path, tmp_path: Path) -> None:
    """Parts with memory (a running baseline, running moments) do not get to see it either."""
    held = Holding()
    more: dict[str, Any] = {"critic_warmup": 0} if method == "ppo_max" else {}
    reward = bad_reward(tmp_path, (1,), what)
    result = go(method, small_model, tmp_path / "run", steps=4, n=4, reward=reward, observer=held, **more)
    assert [held.moved(step) for step in range(4)] == [True, False, True, True]
    assert [row.get("refused", 0) for row in result.metrics] == [0, 1, 0, 0]
    kept = json.loads((tmp_path / "run" / "refused" / "step-000002-0.json").read_text())
    assert "at index 2" in kept["why"] and kept["step"] == 2
    groups = [group_from_record(record) for record in kept["groups"]]
    assert all(isinstance(group, Group) and len(group.traces) == 4 for group in groups) and len(groups) == 2
    assert kept["groups"][0]["traces"][0]["turns"][0]["text"].startswith("<|user|>")
    (event,) = log_rows(tmp_path / "run", "events")
    assert event["kind"] == "refused" and held.said == [event["said"]]
    assert "step 2: an update was refused, weights unchanged: reward f returned" in held.said[0]


def test_a_reward_that_is_none_in_a_refill_costs_one_step(small_model: Path, tmp_path: Path) -> None:
    """DAPO asks for more in the middle of select: the first call of the reward is the batch, the second its refill."""
    flat = NAN_AT.replace(
        "scores = coin(completions)", "scores = [1.0] * len(completions) if calls == 0 else coin(completions)"
    )
    reward = function(tmp_path / "r.py", flat.replace("BAD", "(1,)").replace("WHAT", "float('nan')"), "f")
    held = Holding()
    result = go("dapo", small_model, tmp_path / "run", n=4, reward=reward, observer=held)
    assert [row.get("refused", 0) for row in result.metrics] == [1, 0] and not held.moved(0)
    kept = json.loads((tmp_path / "run" / "refused" / "step-000001-0.json").read_text())
    assert "at index 2" in kept["why"]


@pytest.mark.parametrize("size", ["1e38", "1e25"])
def test_a_reward_beyond_all_bounds_moves_neither_critic_nor_policy(
    size: str, small_model: Path, tmp_path: Path
) -> None:
    """At 1e25 the policy's own gradient is finite, and weight decay would move it: it waits for the critic's."""
    reward = function(
        tmp_path / "r.py", f"{COIN}\ndef f(completions):\n    return [{size} * x for x in coin(completions)]\n", "f"
    )
    held = Holding()
    match = r"step 1: \d* ?updates? w\w+ refused, weights unchanged: the gradient's norm is (nan|inf)"
    more: dict[str, Any] = {"reward": reward, "n": 4, "weight_decay": 0.1, "observer": held}
    with pytest.raises(FloatingPointError, match=match):
        go("ppo", small_model, tmp_path / "run", on_nan="stop", **more)
    assert len(held.weights) == 2 and not held.moved(0)


def test_three_refused_steps_in_a_row_stop_the_run_and_two_do_not(small_model: Path, tmp_path: Path) -> None:
    two = go("grpo", small_model, tmp_path / "two", steps=6, reward=bad_reward(tmp_path, (1, 2, 4)))
    assert [row.get("refused", 0) for row in two.metrics] == [0, 1, 1, 0, 1, 0]
    with pytest.raises(FloatingPointError, match=rf"This happened {IN_A_ROW} steps in a row"):
        go("grpo", small_model, tmp_path / "three", steps=6, reward=bad_reward(tmp_path, (1, 2, 3)))
    assert len(log_rows(tmp_path / "three", "metrics")) == 4


def test_a_run_stopped_by_a_nan_resumes_with_on_nan_skip(small_model: Path, tmp_path: Path) -> None:
    """A NaN that the reply itself causes comes again: the policy decides, and both ways are the same run until then."""
    code = f"{COIN}\ndef f(completions):\n    rewards = zip(completions, coin(completions))\n"
    code += "    return [nan(c) if nan(c) else x for c, x in rewards]\n"
    code += "\ndef nan(c):\n    return float('nan') if hashlib.md5(c.encode()).digest()[1] < 24 else 0.0\n"
    reward = function(tmp_path / "r.py", code, "f")
    straight = go("grpo", small_model, tmp_path / "straight", steps=6, reward=reward)
    refused = [row["step"] for row in straight.metrics if row.get("refused")]
    assert 0 < len(refused) < 6
    with pytest.raises(FloatingPointError, match=r"To skip such batches: --resume with --on-nan skip"):
        go("grpo", small_model, tmp_path / "stopped", steps=6, reward=reward, on_nan="stop")
    assert len(log_rows(tmp_path / "stopped", "metrics")) == refused[0]
    burnish.resume(tmp_path / "stopped", on_nan="skip")
    same_run(tmp_path / "straight", tmp_path / "stopped")


def test_a_weight_that_is_infinite_ends_the_run_and_is_never_saved(small_model: Path, tmp_path: Path) -> None:
    def spoil(run: Run) -> None:
        next(run.models["policy"].module.parameters()).data[70, 0] = float("inf")

    held = Holding(spoil)
    with pytest.raises(
        FloatingPointError, match=r"The weight model.embed_tokens.weight of 'policy' itself is not finite"
    ):
        go("sft", small_model, tmp_path / "run", observer=held)
    assert not held.moved(0)
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_learning_rate_that_breaks_the_weights_leaves_whole_checkpoints_only(
    small_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(FloatingPointError, match=r"is not finite"):
        go("sft", small_model, tmp_path / "run", steps=8, lr=1e38, clip=0)
    for path in (tmp_path / "run" / "checkpoints").glob("step-*/policy"):
        from safetensors.torch import load_file

        assert all(bool(torch.isfinite(t).all()) for t in load_file(path / "model.safetensors").values())


def test_a_loss_that_is_none_is_refused_even_where_its_gradient_is_finite(small_model: Path) -> None:
    """A term with coefficient 0 has a gradient of 0, and a loss of 0 x inf = NaN."""
    method = build_method("sft", small_model)
    models = build_cast(method, small_model)
    ((phase, groups, step),) = credited(method, models, SMALL)
    (term,) = phase.learn.terms

    def broken(live: Any) -> torch.Tensor:
        losses = term.loss(live)
        return losses + torch.full_like(losses, float("inf"))

    before = {name: p.detach().clone() for name, p in models["policy"].module.named_parameters()}
    learn(groups, Learn(replace(term, loss=broken, coef=0.0)), step)
    assert [refusal.why for refusal in step.refusals] == ["the gradient's norm is nan"]
    assert all(torch.equal(p, before[name]) for name, p in models["policy"].module.named_parameters())


# -------------------------------------------------------------------------------------------------------------- memory


def test_steady_growth_is_told_and_one_jump_is_not() -> None:
    steps = WINDOW * (RISES + 1)
    assert not growing([1000.0] * steps)
    assert not growing([1000.0] * (steps // 2) + [3000.0] * (steps // 2)), "one jump"
    assert not growing([1000.0 + 0.1 * i for i in range(steps)]), f"less than {LEAST} MiB in all"
    assert not growing([1000.0 + 10 * i for i in range(steps - 1)]), "too early to tell"
    assert "by 10.0 MiB a step" in growing([1000.0 + 10 * i for i in range(steps)])


def test_two_hundred_steps_hold_no_more_memory_than_fifty(small_model: Path, tmp_path: Path) -> None:
    """After the first steps (buffers, first checkpoint) the process holds at most 24 MiB more, checkpoints included."""
    go("grpo", small_model, tmp_path / "run", steps=200, save_every=20, keep=1, max_new_tokens=4)
    held = [row["memory_mb"] for row in log_rows(tmp_path / "run", "timings")]
    assert len(held) == 200 and resident_mb() > 100
    assert max(held[150:]) - max(held[:50]) < 24, held[::10]
