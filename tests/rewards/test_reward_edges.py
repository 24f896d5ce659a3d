"""Edge cases of every reward by name and of every method that trains a reward model: replies without tokens or with
odd characters, copies, a group of one, nobody right or all right, pairs that do not differ.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, arguments_for, build_cast, make_model, task_for
from guards import guards
from judge_server import serving
from shaping import a_step, group, said, trace
from test_judge_scorers import Replies, at, scorer_of
from test_process_rewards import scoring_model
from test_reward_models import REWARDS, reward_model

from burnish.compose.guard import guarded
from burnish.compose.rewards import with_scorers
from burnish.core.loop import loop
from burnish.core.method import Method
from burnish.core.scorer import Named, is_failed
from burnish.core.task import Task, Verdict
from burnish.core.types import Group, Trace
from burnish.methods.table import METHODS, find
from burnish.models.build import Models
from burnish.reward_functions.resolve import read_rewards
from burnish.rewards.read import named_rewards, named_shapes, split_rewards
from burnish.rewards.table import load_scorers
from burnish.tasks.table import source
from burnish.tasks.task_set import MadeTasks, rewarded, unscored

pytestmark = guards("rewards", "sandbox", "verifiers", "reward_functions")

__all__ = ["scoring_model"]  # a fixture

TASK = source("sort")
NEEDED = {"target_length": "target_length(3)", "budget_length": "budget_length(3)", "memory_r": "memory_r(warmup=0)"}
SHAPES = {
    name: NEEDED.get(name, f"{name}({', '.join(f'{k}={v!r}' for k, v in entry.trial.items())})")
    for name, entry in load_scorers().items()
    if entry.kind == "shape"
}
PROCESS = ("prm", "prm_steps", "prm_clip", "prm_delta", "prm_clip_delta", "prm_per_line", "prefix_gain", "prefix_score")
TEXTS = ("answer: 1", "", "\0\u202e\ufeff", "confidence: nan", "<answer></answer><answer>", "x " * 40)


def replies(chat: object, reward: float) -> list[Trace]:
    """Replies with odd texts, and one without a token."""
    return [*(said(chat, text, reward) for text in TEXTS), trace(reward, tokens=[])]


def copies(chat: object, reward: float, count: int = 4) -> list[Trace]:
    return [said(chat, "answer: 1", reward) for _ in range(count)]


def edges(chat: object) -> list[Group]:
    """Nobody right, all right, copies, a group of one."""
    return [
        group(*replies(chat, 0.0), key="wrong"),
        group(*replies(chat, 1.0), key="right"),
        group(*copies(chat, 1.0), key="copies"),
        group(said(chat, "answer: 1", 1.0), key="one"),
    ]


def assert_sound(named: Named, models: Models, times: int = 1) -> None:
    """Every reply is scored with a finite number or marked with a reason, and copies are scored alike."""
    kind = "stream:dense/" if named.scorer.dense else "score:reward/"
    writes = "score:reward" if "score:reward" in named.scorer.part.updates else kind + named.name
    part = guarded(named.scorer.part, named.name, writes)
    for step in range(times):
        groups = edges(models["policy"].chat)
        if times == 1:  # rewards that read the text of the task take the prompt of a real one
            groups = [replace(own, task=TASK.task("train", i)) for i, own in enumerate(groups)]
        part.call(groups, a_step(models, step))
        for one in (one for own in groups for one in own.traces):
            if is_failed(one):
                assert one.note["why"].startswith("the reply has no tokens")
            elif named.scorer.dense:
                stream = one.streams[writes.removeprefix("stream:")]
                assert len(stream) == len(one) and not stream.isinf().any()
            else:
                assert math.isfinite(one.scores[writes.removeprefix("score:")])
        if not named.scorer.dense:
            assert not any(is_failed(one) for one in groups[2].traces)
            equal = [one.scores.get(writes.removeprefix("score:")) for one in groups[2].traces]
            assert equal[0] is not None and equal == pytest.approx([equal[0]] * len(equal), abs=1e-4)


@pytest.fixture(scope="module")
def policy(small_model: Path) -> Models:
    return build_cast(find("grpo").build(TASK), small_model)


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_survives_edge_cases(name: str, policy: Models) -> None:
    (named,) = named_shapes(SHAPES[name], TASK)
    assert_sound(named, policy, times=2)


def cast(named: list[Named], model: Path) -> Models:
    return build_cast(with_scorers(find("grpo").build(unscored(TASK), n=2), named, []), model)


def rewards_of(text: str) -> list[Named]:
    _, scorers = split_rewards(read_rewards(text))
    return named_rewards(scorers, TASK)


@pytest.mark.parametrize("name", ["sayself", "brier_score", "timehc", "repeated_tokens", "majority"])
def test_a_reward_without_a_model_survives_edge_cases(name: str, policy: Models) -> None:
    assert_sound(rewards_of(name)[0], policy)


@pytest.mark.parametrize("name", [*REWARDS, "rm"])
def test_a_reward_model_survives_edge_cases(name: str, small_model: Path, tmp_path: Path) -> None:
    outputs, options = REWARDS.get(name, (1, ""))
    path = reward_model(tmp_path / "rm", outputs) if outputs else make_model(tmp_path / "rm", seed=4)
    named = rewards_of(f"{name}({path}{', ' if options else ''}{options})")
    assert_sound(named[0], cast(named, small_model))


@pytest.mark.parametrize("name", PROCESS)
def test_a_process_reward_survives_edge_cases(name: str, small_model: Path, scoring_model: Path) -> None:
    named = rewards_of(f"{name}({scoring_model})")
    assert_sound(named[0], cast(named, small_model))


def test_fine_grained_and_induced_rewards_survive_edge_cases(small_model: Path, scoring_model: Path) -> None:
    for text in (f"fine_grained({scoring_model}@sentences*0.3)", f"induced({small_model})"):
        named = rewards_of(text)
        assert_sound(named[0], cast(named, small_model))


class Undecided(MadeTasks):
    """The wrong reply of every task is the right one: a preference without a difference."""

    def task(self, split: str, index: int) -> Task:
        found = self.source.task(split, index)
        return replace(found, given={**found.given, "mistake": found.given["demo"]})

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.source.verify(task, reply)


# fmt: off
PAIRED = (
    "reward_model", "ranked_reward_model", "axiomatic_rm", "brme", "armorm", "convex_reward_model",
    "denoised_reward_model", "meta_rm", "reward_ensemble", "maxmin_rm", "vpl", "goal_conditioned_rm", "polar",
    "discriminator", "modpo", "pessimistic_mle", "seq2seq_rm", "themis", "multicritique_rm", "salmon",
    "process_reward_model", "process_regression", "rating_model", "dpa", "spct", "spct_rft", "think_rm",
    "pairwise_rl", "pairwise_grpo", "urpo",
)
# fmt: on


def finite(models: Models) -> bool:
    return all(bool(torch.isfinite(p).all()) for model in models for p in model.module.parameters())


def one_step(method: Method, model: Path, prompts: int = 3) -> dict[str, float]:
    models = build_cast(method, model)
    report = next(loop(method, models, replace(SMALL, prompts=prompts), steps=1))
    assert finite(models)
    return report.metrics


@pytest.mark.parametrize("name", PAIRED)
def test_pairs_without_a_difference_and_a_batch_of_one(name: str, small_model: Path, other_model: Path) -> None:
    for prompts in (3, 1):
        method = METHODS[name].build(Undecided(task_for(name)), **arguments_for(name, other_model))
        assert all(math.isfinite(float(value)) for value in one_step(method, small_model, prompts).values())


@pytest.mark.parametrize("reward", [0.0, 1.0])
@pytest.mark.parametrize(
    "name", ["constrained_rlhf", "cgpo_crpg", "cgpo_codpo", "cgpo_crraft", "dynamic_control", "urpo", "mrt"]
)
def test_replies_that_are_all_worth_the_same(name: str, reward: float, small_model: Path, other_model: Path) -> None:
    task = rewarded(task_for(name).source, lambda completions: [reward] * len(completions))  # type: ignore[attr-defined]
    method = METHODS[name].build(task, **arguments_for(name, other_model))
    metrics = one_step(method, small_model)
    assert all(math.isfinite(float(value)) for value in metrics.values())


JUDGED = {
    "rubric": "",
    "carmo": "",
    "checklist": ", items='It is short.'",
    "pairwise": "",
    "principles": ", samples=2",
    "ultrafeedback": "",
    "codeultrafeedback": "",
    "meta_po": "",
}


@pytest.mark.parametrize("name", JUDGED)
def test_a_judge_that_says_nothing_readable_gives_no_score(name: str, small_model: Path) -> None:
    """A reply alone and two copies: a failure or 0. An empty reply is never above one with content."""
    with serving(lambda body: "Score: ten; A > B\n\0") as server:
        made = Replies(small_model, scorer_of(f"{name}({at(server)}{JUDGED[name]})"))
        for texts in (["a reply"], ["a reply", "a reply"]):
            assert all(is_failed(one) or one.scores[f"reward/{name}"] == 0 for one in made.scored("q", texts))
        empty, other = made.scored("q", ["", "a reply"])
        assert not is_failed(empty)
        assert is_failed(other) or empty.scores[f"reward/{name}"] < other.scores[f"reward/{name}"]
