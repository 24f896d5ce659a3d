"""The held-out measure follows the signal: which one a method and a task call for, and what goes by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, arguments_for, build_cast, task_for
from runs import go
from torch import tensor

from burnish.core.step import Step
from burnish.core.types import Clock
from burnish.evals.better import better_is_lower, kind_of, label, short, written
from burnish.evals.evaluate import Interval, held_out_tasks
from burnish.evals.heldout import Asked, Outcome, held_out
from burnish.methods.table import METHODS, find
from burnish.report.catalogue import result_of
from burnish.report.final_message import verdict
from burnish.report.measured import cut, measured
from burnish.tasks.resolve import resolve_task
from burnish.tasks.source import Source
from burnish.zoo.secrets_of_rlhf_ii import Cuts, strengths

REWARD = "def brief(completions, **columns):\n    return [-0.001 * sum(map(ord, text)) for text in completions]\n"


def of(method: str, task: str | Source = "add", asked: str = "auto", **arguments: Any) -> str:
    source = resolve_task(task) if isinstance(task, str) else task
    return kind_of(find(method).build(source, **arguments), source, asked)


def prompts(tmp_path: Path) -> str:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Say {i}"}) + "\n" for i in range(40)))
    return str(file)


@pytest.mark.parametrize(
    ("method", "task", "kind"),
    [
        ("grpo", "add", "judged"),
        ("ppo", "maze", "judged"),  # episodes
        ("sft", "maze", "judged"),  # what is imitated is played
        ("sft", "add", "terms"),
        ("dpo", "add", "terms"),
        ("reward_model", "add", "terms"),
        ("best_of_n", "add", "judged"),  # trains nothing: judged by its choice
    ],
)
def test_the_measure_follows_what_is_learned_from(method: str, task: str, kind: str) -> None:
    assert of(method, task) == kind


def test_distillation_is_measured_by_its_loss(other_model: Path) -> None:
    for name in ("opd", "gkd"):
        source = task_for(name)
        assert kind_of(METHODS[name].build(source, **arguments_for(name, other_model)), source) == "terms"


def test_a_reward_model_is_the_measure_of_its_run(tmp_path: Path) -> None:
    """With prompts alone as with answers: the reward is what is learned from; the accuracy stands beside it."""
    assert of("grpo", prompts(tmp_path), reward_model="rm") == "scored" == of("grpo", "add", reward_model="rm")
    assert of("grpo", "add", "accuracy", reward_model="rm") == "judged"


@pytest.mark.parametrize(
    ("method", "asked", "message"),
    [
        ("grpo", "loss", "grpo samples its own"),
        ("reward_model", "accuracy", "reward_model writes no replies"),
        ("reward_model", "reward", "reward_model has none"),
    ],
)
def test_a_measure_that_cannot_be_taken_is_refused(method: str, asked: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        of(method, asked=asked)


def test_a_graded_reward_is_measured_by_its_mean(small_model: Path, tmp_path: Path) -> None:
    """A graded reward below 0: every reply counts as wrong, and a run that gains shows it."""
    (tmp_path / "own.py").write_text(REWARD)
    options = {"eval_tasks": 8, "eval_every": 1, "steps": 2, "save_every": 1, "reward": f"{tmp_path}/own.py:brief"}
    result = go("grpo", small_model, tmp_path / "run", **options)
    before, after = result.before, result.after
    assert before is not None and after is not None and before.name == after.name == "reward"
    assert before.value.mean < 0 and before.value.low < before.value.high
    assert result.best is not None and result.best.name == "reward"
    row = result.metrics[0]
    assert [name for name in row if name.startswith("heldout/")][:2] == ["heldout/reward", "heldout/greedy_reward"]
    said = verdict(result, 8)[0]
    assert said.startswith("held-out reward, sampled at temperature 1: -") and " -> -" in said
    with result.store as store:
        assert result_of(store, "finished").startswith("reward -")


def test_rewards_that_turn_out_to_be_graded_stay_comparable() -> None:
    """A mean of rewards 0 and 1 is an accuracy; nothing else is renamed."""
    before = Outcome("sampled_accuracy", Interval(0.25, 0.0, 0.5))
    assert before.like("reward").name == "reward" and before.like("sft/nll") is before
    nll = Outcome("held-out sft/nll", Interval(1.0, 1.0, 1.0))
    assert nll.like("reward") is nll


def test_sft_shows_likelihood_and_perplexity_and_accuracy_beside_them(small_model: Path) -> None:
    source = resolve_task("add")
    method = find("sft").build(source)
    found = held_out(method, build_cast(method, small_model), source, SMALL, 4, Asked(k=1))
    assert found.measure == "sft/nll" and found.greedy is not None and found.sampled is not None
    assert found.also["perplexity"] == pytest.approx(2.718281828**found.value.mean, rel=1e-6)
    lines = measured(None, found)
    assert lines[0].startswith("held-out sft/nll: ") and "perplexity" in lines[0]
    assert lines[1].startswith("held-out accuracy, greedy: ") and "sampled at temperature 1" in lines[2]
    during = held_out(method, build_cast(method, small_model), source, SMALL, 4, Asked(k=1, whole=False))
    assert during.greedy is None and list(during.metrics()) == ["heldout/sft/nll", "heldout/sft/perplexity"]


def test_cut_replies_are_said(small_model: Path) -> None:
    """A random model does not end its replies of 8 tokens."""
    source = resolve_task("add")
    method = find("grpo").build(source)
    found = held_out(method, build_cast(method, small_model), source, SMALL, 6, Asked(k=1))
    assert found.also["cut_off"] > 0.3 and found.metrics()["heldout/cut_off"] == found.also["cut_off"]
    assert cut(None, found, 8) == [
        f"replies cut at 8 tokens: {found.also['cut_off']:.1%}; they have no end to judge: raise --max-new-tokens"
    ]
    none = Outcome("accuracy", found.value, also={"cut_off": 0.0})
    assert cut(none, none, 8) == [] and cut(found, none, 8)[0].endswith(" -> 0.0%")


def test_held_out_pairs_are_not_flipped() -> None:
    """denoised_reward_model flips pairs that it scores the other way: held out, it would always agree with itself."""
    source = resolve_task("add")
    part = strengths(source, Cuts(0.5, 0.2, 0.1), 0.1, 1.0, 4, judge="rm")
    from burnish.core.types import Group, Trace, Turn

    turn = Turn(tensor([1, 2]), "demo")
    group = Group(source.task("heldout", 0), [Trace((turn,), 0), Trace((turn,), 1)], pairs=[(0, 1)])
    part.call([group], Step(Clock(0, 1), None, SMALL, measures=True))  # type: ignore[arg-type]  # asks no model
    assert group.pairs == [(0, 1)] and not group.traces[0].streams["margin"].any()


def test_measures_have_names_that_are_written_as_what_they_are() -> None:
    assert written("sampled_accuracy", 0.5) == "50.0%" == written("success", 0.5)
    assert written("reward", -0.3) == "-0.300" and written("perplexity", 2.2e8) == "2.2e+08"
    assert better_is_lower("sft/nll") and better_is_lower("kd/loss") and not better_is_lower("reward")
    assert label("sampled_accuracy") == "accuracy, sampled" and label("dpo/margin") == "dpo/margin"
    assert [short(name) for name in ("accuracy", "reply/accuracy", "sft/nll", "reward")] == [
        "accuracy",
        "pairs right",
        "NLL",
        "reward",
    ]


@pytest.mark.parametrize("name", ["sort", "add", "guess"])
def test_evaluations_ask_held_out_tasks_alone(name: str) -> None:
    """In their order, and none of those that are trained on."""
    made = resolve_task(name)
    asked = held_out_tasks(made, 12)
    assert [task.key for task in asked] == [made.task("heldout", i).key for i in range(12)]
    assert not {task.key for task in asked} & {made.task("train", i).key for i in range(200)}
