"""Token rewards: of several models on their own steps, of prefixes, of a frozen language model, of progress."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, make_model
from test_process_rewards import groups_of, heads, scoring_model
from transformers import AutoModelForCausalLM

from burnish.compose.rewards import with_scorers
from burnish.core.loop import loop
from burnish.core.step import Step
from burnish.core.task import Task, Verdict
from burnish.core.types import Clock, Turn
from burnish.methods.table import find
from burnish.models.load import load_chat
from burnish.reward_functions.resolve import read_rewards
from burnish.rewards.fine_grained import read_judge
from burnish.rewards.progress_bonus import progress
from burnish.rewards.read import named_rewards
from burnish.rollout.completions import closing_words, completions
from burnish.score.induced import VALUES, centred, induced_rewards
from burnish.score.step_rewards import place_all
from burnish.tasks.table import source
from burnish.tasks.task_set import unscored
from burnish.zoo.mrt import progress_advantages

__all__ = ["scoring_model"]  # a fixture


def test_rewards_of_several_models_add_up_by_hand() -> None:
    """Six tokens; sub-sentences end at 2 (good) and 5 (bad), a sentence at 5 (good): 0.3 at 2, -0.3 + 0.5 at 5."""
    stream = place_all(6, [([2, 5], [0.3, -0.3]), ([5], [0.5])])
    assert stream.isnan().tolist() == [True, True, False, True, True, False]
    assert stream[[2, 5]].tolist() == pytest.approx([0.3, 0.2])


def test_models_are_named_with_steps_and_weights() -> None:
    one = read_judge("runs/a/model@sentences*0.5")
    assert (one.path, one.weight, one.read.__name__) == ("runs/a/model", 0.5, "sign")
    assert read_judge("m@whole").read.__name__ == "number"
    assert read_judge("m@lines|chance*-2").weight == -2.0 and read_judge("m@lines|chance").read.__name__ == "chance"
    for wrong, said in (("m", "is no model"), ("m@words", "steps is 'words'"), ("m@lines|x", "reads a head as 'x'")):
        with pytest.raises(ValueError, match=said):
            read_judge(wrong)


def test_fine_grained_rewards_of_two_models(small_model: Path, scoring_model: Path) -> None:
    reward = f"fine_grained({scoring_model}@3*0.3, {scoring_model}@whole*0.5)*2"
    _, groups = groups_of(reward, "ppo", small_model)
    traces = [trace for group in groups for trace in group.traces]
    steps, wholes = (heads(groups, scoring_model, how) for how in (3, "whole"))
    for trace, (ends, head), (_, last) in zip(traces, steps, wholes, strict=True):
        expected = torch.full((len(trace),), math.nan)
        expected[ends] = 0.3 * torch.where(head > 0, 1.0, -1.0)
        expected[len(trace) - 1] += 0.5 * float(last[0])
        found = trace.streams["dense/fine_grained"]
        assert torch.allclose(found, expected, atol=1e-5, equal_nan=True)


def test_one_model_of_the_whole_is_a_sparse_reward(small_model: Path, scoring_model: Path) -> None:
    _, dense = groups_of(f"fine_grained({scoring_model}@whole)", "ppo", small_model)
    _, sparse = groups_of(f"rm({scoring_model})", "ppo", small_model)
    for one, other in zip(dense[0].traces, sparse[0].traces, strict=True):
        assert torch.allclose(one.streams["reward"], other.streams["reward"], atol=1e-5, equal_nan=True)


def test_gains_of_prefixes_add_up_to_the_last_score(small_model: Path, scoring_model: Path) -> None:
    _, groups = groups_of(f"prefix_gain({scoring_model})", "grpo", small_model)
    _, level = groups_of(f"prefix_score({scoring_model})", "grpo", small_model)
    for trace, other, (ends, head) in zip(
        groups[0].traces, level[0].traces, heads(groups, scoring_model, 1), strict=False
    ):
        assert len(ends) == int(trace.by("policy").sum())
        assert trace.scores["reward"] == pytest.approx(float(head[-1]), abs=1e-4)
        assert other.scores["reward"] == pytest.approx(float(head.sum()), abs=1e-4)


def test_the_induced_reward_by_hand() -> None:
    """Two words, logits (1, -1) then (0.5, -0.5), the first word twice: 1 - 0.5 and 0.5; the sum is f at step 1."""
    logits, tokens = torch.tensor([[1.0, -1.0], [0.5, -0.5]]), torch.tensor([0, 0])
    assert induced_rewards(logits, tokens, VALUES["max"]).tolist() == [0.5, 0.5]
    assert induced_rewards(logits, tokens, VALUES["max"], 0.0).tolist() == [1.0, 0.5]
    soft = 0.5 * math.tanh(0.5)  # softmax of (0.5, -0.5) is (0.731, 0.269): 0.5 (0.731 - 0.269)
    assert float(induced_rewards(logits, tokens, VALUES["softmax"])[0]) == pytest.approx(1 - soft)
    log_sum = math.log(math.exp(0.5) + math.exp(-0.5))
    assert float(induced_rewards(logits, tokens, VALUES["logsumexp"])[0]) == pytest.approx(1 - log_sum)


def test_greedy_replies_telescope_and_centring_ignores_what_is_impossible() -> None:
    logits = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    greedy = logits.argmax(-1)
    rewards = induced_rewards(logits, greedy, VALUES["max"])
    assert float(rewards.sum()) == pytest.approx(float(centred(logits)[0].max()), abs=1e-5)
    assert torch.allclose(induced_rewards(logits + 3.0, greedy, VALUES["max"]), rewards, atol=1e-5)
    masked = torch.tensor([[1.0, 3.0, -math.inf]])
    assert centred(masked).tolist() == [[-1.0, 1.0, -math.inf]]
    assert all(bool(value(centred(masked)).isfinite().all()) for value in VALUES.values())


def test_the_induced_reward_of_a_model(small_model: Path, other_model: Path) -> None:
    _, groups = groups_of(f"induced({other_model})*0.5", "reinforce", small_model)
    model = AutoModelForCausalLM.from_pretrained(other_model, trust_remote_code=False).eval()
    for trace in groups[0].traces:
        mask = trace.by("policy")
        with torch.no_grad():
            before = model(trace.tokens[None]).logits[0][:-1][mask[1:]]
        expected = induced_rewards(before, trace.tokens[mask], VALUES["max"])
        assert torch.allclose(trace.streams["dense/induced"][mask], expected, atol=1e-3)
        assert bool(trace.streams["dense/induced"][~mask].isnan().all())


def test_progress_by_hand() -> None:
    """Outcome 1, J from 0.5 to 0.75, alpha 0.5: 1.125. The sum telescopes."""
    assert 1 + 0.5 * sum(progress([0.5, 0.75])) == 1.125
    assert progress([0.25, 0.5, 0.0, 1.0]) == [0.25, -0.5, 1.0] and sum(progress([0.25, 0.5, 0.0, 1.0])) == 0.75


def test_advantages_over_forced_answers_by_hand() -> None:
    """r = 1, 0; forced answers 0.5, 0, 0, 0.5: J = 0.25. alpha 1: 0.75, -0.25. alpha 0: 0.5, -0.5, GRPO's."""
    forced = [0.5, 0.0, 0.0, 0.5]
    assert progress_advantages([1.0, 0.0], forced, 1.0) == [0.75, -0.25]
    assert progress_advantages([1.0, 0.0], forced, 0.0) == [0.5, -0.5]
    assert progress_advantages([1.0, 0.0], forced, 0.4) == pytest.approx([0.6, -0.4])


class Short:
    """Short replies are right; the task of a test."""

    def __init__(self) -> None:
        self.inner = source("sort")
        self.name, self.summary, self.gives = "short", "", self.inner.gives

    def size(self, split: str) -> int | None:
        return None

    def task(self, split: str, index: int) -> Task:
        return self.inner.task(split, index)

    def verify(self, task: Task, reply: str) -> Verdict:
        return Verdict(float(len(reply) < 24), len(reply) < 24)


def test_the_progress_bonus_stands_on_the_ends_of_episodes(small_model: Path) -> None:
    task = unscored(Short())
    rewards = named_rewards(read_rewards("progress_bonus(2, most=2, steps=4, closing='!')"), task)
    method = with_scorers(find("ppo").build(task, n=2), rewards, [])
    models = build_cast(method, small_model)
    report = next(loop(method, models, SMALL, steps=1))
    for group in report.groups["main"]:
        empty = group.traces[0].turns[0].tokens[:0]
        step = Step(Clock(0, 1), build_cast(method, small_model), SMALL)
        (texts,) = completions([(group.task, group.traces[0].turns[0], empty, "progress ()")], 2, step, closing="!")
        start = sum(len(text) < 24 for text in texts) / 2
        for trace in group.traces:
            stream = trace.streams["dense/progress_bonus"]
            at = (~stream.isnan()).nonzero()[:, 0].tolist()
            assert at[-1] == len(trace) - 1 and len(at) <= 3
            assert float(stream.nansum()) == pytest.approx(trace.scores["correct"] - start)


def test_completions_obey_the_limit_and_repeat(small_model: Path) -> None:
    method = find("ppo").build(source("sort"))
    models = build_cast(method, small_model)
    chat = models["policy"].chat
    task = source("sort").task("train", 0)
    prompt, said = Turn(chat.prompt(task), "task"), chat.written("abcdef")
    step = Step(Clock(0, 1), models, replace(SMALL, max_new_tokens=8))
    asked = [(task, prompt, said, "x"), (task, prompt, said[:0], "x")]
    (some, fresh), again = completions(asked, 3, step), completions(asked, 3, step)
    assert [some, fresh] == again and len(some) == len(fresh) == 3 and len(set(fresh)) > 1
    assert all(text.startswith("abcdef") for text in some)
    assert all(len(text) <= 8 for text in [*some, *fresh])  # a token is a byte
    (stopped,) = completions(asked[:1], 2, step, closing="\n!")
    assert all(text.startswith("abcdef\n!") for text in stopped)


def test_a_thought_is_stopped_on_a_line_of_its_own(tmp_path: Path) -> None:
    chat = load_chat(make_model(tmp_path))
    for said, expected in (("", "a:"), ("x\n", "a:"), ("x", "\na:")):
        assert chat.text(closing_words(chat.written(said), "\na:", chat)) == expected


def test_mrt_learns_from_continuations_alone(small_model: Path) -> None:
    method = find("mrt").build(Short(), n=2, answers=3, closing="!", episodes="3")
    report = next(loop(method, build_cast(method, small_model), SMALL, steps=1))
    for group in report.groups["main"]:
        forced = [trace for trace in group.traces if "forced" in trace.tags]
        others = [trace for trace in group.traces if "forced" not in trace.tags]
        assert len(forced) == 3 and len(others) == 2
        reached = sum(trace.scores["reward"] for trace in forced) / 3
        for trace in others:
            mask = trace.by("policy")
            expected = [trace.scores["reward"] - reached] * int(mask.sum())
            assert trace.streams["adv"][mask].tolist() == pytest.approx(expected)
        for trace in forced:
            assert "policy" not in trace.authors() and trace.authors()[-2:] == ("guide", "forced")
