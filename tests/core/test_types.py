"""Shapes of the reward: numbers derived by hand from the formulas, limits, and what must leave a reward alone."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path

import pytest
from conftest import build_cast
from shaping import a_step, group, said, scorer, shaped, trace

from burnish.core.call_syntax import read_call
from burnish.core.scorer import mark_failed
from burnish.methods.table import find
from burnish.models.build import Models
from burnish.rewards.table import load_scorers
from burnish.score.maths.calibration import (
    binned,
    brier,
    calibration_error,
    sayself_reward,
    stated_confidence,
    unbiased,
)
from burnish.score.maths.lengths import cosine_between, group_relative_lengths, shortest_first
from burnish.score.maths.repetition import bleu, in_repeated, repeated_share
from burnish.tasks.table import source

# How each shape is switched off.
OFF = {
    "overlong": "overlong(weight=0)",
    "unfinished": "unfinished(coef=0)",
    "rule_first": "rule_first(coef=0)",
    "cosine_length": "cosine_length(coef=0)",
    "alp": "alp(0)",
    "group_length": "group_length(0)",
    "target_length": "target_length(3, alpha=0)",
    "budget_length": "budget_length(3, coef=0)",
    "early_exit": "early_exit(1)",
    "hawkeye": "hawkeye(0)",
    "clip": "clip(limit=1e999)",
    "centre": "centre(0)",
    "normalise": "normalise(0)",
    "per_task": "per_task(0)",
    "group_normalise": "group_normalise(0)",
    "denoise": "denoise(0, 0)",
    "scheduled": "scheduled(correct, 0, 0)",
    "progress": "progress(0)",
    "repetition": "repetition(0)",
    "dra": "dra(coef=0)",
    "curiosity": "curiosity(bleu=0, cosine=0, entropy=0)",
    "distinct": "distinct(0)",
    "memory_r": "memory_r(exploit=0, explore=0)",
    "normalised_sum": "normalised_sum({'correct': 1}, coef=0)",
    "running_sum": "running_sum({'correct': 1}, coef=0)",
    "lexicographic": "lexicographic(['correct'], coef=0)",
    "worst_reward": "worst_reward(['correct'], coef=0)",
    "gated": "gated([])",
    "lagrangian": "lagrangian(at_least={'correct': 0.5}, lr=0)",
    "temporal": "temporal(0)",
}

FILES = ("blends", "diversity", "lengths", "memory", "plain", "repetition", "temporal")
SHAPES = [
    name
    for name, entry in load_scorers().items()
    if entry.kind == "shape" and entry.build.__module__.rpartition(".")[2] in FILES
]


@pytest.fixture(scope="module")
def models(small_model: Path) -> Models:
    return build_cast(find("grpo").build(source("sort")), small_model)


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_that_is_off_returns_its_input_bit_for_bit(name: str, models: Models) -> None:
    assert name in OFF, f"add {name} to OFF: every shape has a coefficient at which it does nothing"
    rewards = [1.0, 0.0, -0.0, 0.1 + 0.2, -1e300, 5e-324]
    groups = [group(*(trace(r, 3 + i) for i, r in enumerate(rewards)), key=key) for key in "ab"]
    part = scorer(OFF[name]).part
    for step in range(2):  # memories are filled by the first call
        part.call(groups, a_step(models, step))
    for own in groups:
        assert [t.scores["reward"].hex() for t in own.traces] == [r.hex() for r in rewards]


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_leaves_failed_replies_and_empty_groups_alone(name: str, models: Models) -> None:
    entry = load_scorers()[name]
    words = ", ".join(f"{key}={value!r}" for key, value in entry.trial.items())
    text = (
        f"{name}({words})"
        if words
        else {"target_length": "target_length(3)", "budget_length": "budget_length(3)"}.get(name, name)
    )
    failed = trace(0.25)
    mark_failed(failed, "hung")
    alone = trace(0.5)
    mark_failed(alone, "hung")
    shaped(text, group(failed, trace(1.0, 6), trace(0.0)), group(alone, key="b"), group(key="c"), models=models)
    assert failed.scores["reward"] == 0.25 and alone.scores["reward"] == 0.5


def test_cosine_length_by_hand() -> None:
    """Half way, 5 of 10: right (2 + 1) / 2, wrong (-10 + 0) / 2; a quarter: cos(pi / 4) = 0.70711.

    right: 1 + 0.5 x 1.70711 = 1.85355;   wrong: -5 x 1.70711 = -8.53553
    """
    got = shaped("cosine_length(longest=20)", group(trace(1, 10), trace(0, 10), trace(1, 5), trace(0, 5)))
    assert got[0] == pytest.approx([1.5, -5, 1.853553, -8.535534])
    ends = shaped("cosine_length(longest=8)", group(trace(1, 8), trace(0, 8), trace(1, 12), trace(1, 7), trace(0, 0)))
    assert ends[0][:3] == [-10, -10, -10]  # at or over the limit, right or wrong
    assert 1 < ends[0][3] < 1.05 and ends[0][4] == -10
    flat = "cosine_length(right_short=1, right_long=1, wrong_short=0, wrong_long=0, exceed=0, longest=20)"
    assert shaped(flat, group(trace(1, 3), trace(0, 9))) == [[1, 0]]  # v_0 = v_L: the 0/1 reward
    assert cosine_between(2, 1, 0, 7) == 2 and cosine_between(2, 1, 7, 7) == 1


def test_cosine_length_takes_the_repetition_penalty_from_wrong_replies_alone(models: Models) -> None:
    chat = models["policy"].chat
    text = "cosine_length(right_short=1, right_long=1, wrong_short=0, wrong_long=0, longest=100, repetition=2, ngram=2)"
    both = group(said(chat, "a b a b a b", 1.0), said(chat, "a b a b a b", 0.0), said(chat, "a", 0.0))
    assert shaped(text, both, models=models)[0] == pytest.approx([1, -2 * 0.6, 0])


def test_alp_by_hand() -> None:
    """p = 1/2, 3 tokens: 0.01 x 3 x 0.5 = 0.015; nobody right among 4: 0.01 x 3 / 4 = 0.0075."""
    got = shaped("alp(0.01)", group(trace(1, 3), trace(0, 5)), group(*(trace(0, 3) for _ in range(4)), key="b"))
    assert got[0] == pytest.approx([1 - 0.015, -0.025])
    assert got[1] == pytest.approx([-0.0075] * 4)
    easy, hard = shaped("alp(0.01)", group(*(trace(1, 9) for _ in range(4))), group(trace(1, 9), *(trace(0, 9),) * 3))
    assert easy[0] == pytest.approx(1 - 0.09) and hard[0] == pytest.approx(1 - 0.0225)


def test_group_relative_lengths_by_hand() -> None:
    """Lengths 2, 4, 6: lambda = 0.5, 0, -0.5; the shortest is wrong, so it gets 0."""
    assert group_relative_lengths([2, 4, 6], [False, True, True]) == [0.0, 0.0, -0.5]
    assert group_relative_lengths([2, 4, 6], [True, True, False]) == [0.5, 0.0, -0.5]
    assert group_relative_lengths([4, 4], [True, False]) == [0, 0] and group_relative_lengths([], []) == []
    assert shaped("group_length(2)", group(trace(1, 2), trace(1, 4), trace(0, 6)))[0] == pytest.approx([2, 1, -1])


def test_target_and_budget_by_hand() -> None:
    assert shaped("target_length(5, alpha=0.1)", group(trace(1, 3), trace(1, 5), trace(0, 9)))[0] == pytest.approx(
        [0.8, 1, -0.4]
    )
    got = shaped("budget_length(5, alpha=0.1)", group(trace(1, 3), trace(1, 5), trace(1, 20), trace(0, 3)))
    assert got[0] == pytest.approx([0.7, 0.5, 0, 0])
    row = group(trace(1, 3), given={"target_length": 5})
    assert shaped("target_length(alpha=0.1)", row)[0] == pytest.approx([0.8])
    with pytest.raises(ValueError, match="has no number in column 'target_length'"):
        shaped("target_length", group(trace(1, 3)))


def test_early_exit_by_hand() -> None:
    """Right replies of 3, 5, 5 and 9 tokens: places 0, 1, 1, 2."""
    assert shortest_first([3, 5, 5, 9, 1], [True, True, True, True, False]) == [0, 1, 1, 2, 0]
    got = shaped("early_exit(0.5)", group(trace(1, 3), trace(1, 5), trace(1, 5), trace(1, 9), trace(0.2, 1)))
    assert got == [[1, 0.5, 0.5, 0.25, 0.2]]


def test_hawkeye_by_hand() -> None:
    """len_orig 100, len 50, lambda 0.001 (coef 10): 1 - 0.001 x 20^2 = 0.6; within 30 tokens nothing is lost."""
    assert shaped("hawkeye(10, original=100)", group(trace(1, 50), trace(0, 50), trace(1, 30)))[0] == pytest.approx(
        [0.6, -0.4, 1]
    )


def test_hawkeye_keeps_the_length_of_the_first_step() -> None:
    part = scorer("hawkeye(1, share=0)").part
    first, later = group(trace(1, 2), trace(1, 6)), group(trace(1, 8))
    part.call([first], a_step())
    part.call([later], a_step())
    assert later.traces[0].scores["reward"] == pytest.approx(1 - (8 / 4) ** 2)  # not 1 - (8 / 8)^2
    again = scorer("hawkeye(1, share=0)").part
    again.state[0].load_state_dict(json.loads(json.dumps(part.state[0].state_dict())))
    other = group(trace(1, 8))
    again.call([other], a_step())
    assert other.traces[0].scores["reward"] == later.traces[0].scores["reward"]


def test_repetition_by_hand() -> None:
    assert repeated_share("ababab", 2) == pytest.approx(0.6)
    assert repeated_share("abc", 4) == 0 and repeated_share("", 1) == 0 and repeated_share("abc", 1) == 0
    got = shaped("repetition(0.5, n=2)", group(trace(1, tokens=[7, 8, 7, 8, 7, 8]), trace(1, tokens=[7])))
    assert got[0] == pytest.approx([0.7, 1])
    assert in_repeated("abcabx", 2) == [False, False, False, True, True, False]
    assert in_repeated("aaaa", 2) == [False, True, True, True]  # overlapping occurrences count
    own = group(trace(tokens=[7, 8, 7, 8]))
    scorer("repeated_tokens(2)").part.call([own], a_step())
    stream = own.traces[0].streams["dense/repeated_tokens"]
    assert stream[2:].tolist() == [0, 0, -1, -1] and stream[:2].isnan().all()


def test_bleu_by_hand() -> None:
    """a b c d against a b x d: precisions 3/4, 1/3; BLEU-2 = sqrt(1/4) = 0.5. One word short: exp(1 - 4/3)."""
    assert bleu("abcd", ["abxd"], 2) == pytest.approx(0.5)
    assert bleu("abcd", ["abcd", "zzzz"], 4) == pytest.approx(1)
    assert bleu("abc", ["abcd"], 1) == pytest.approx(math.exp(1 - 4 / 3))
    assert bleu("abcd", ["wxyz"], 2) == 0 and bleu("ab", ["ab"], 3) == 0 and bleu("ab", [], 1) == 0
    assert bleu("aaaa", ["ab"], 1) == pytest.approx(1 / 4)  # a count beyond the reference's is clipped


def test_confidence_is_read_or_is_a_named_case() -> None:
    assert stated_confidence("answer: 4\nConfidence: 7") == 0.7
    assert stated_confidence("confidence 3 ... CONFIDENCE = 80%") == 0.8  # the last counts
    for text in ("", "answer: 4", "confidence: high", "confidence: 11", "confidence: -1", "confidence: 150%"):
        assert stated_confidence(text) is None


def test_sayself_and_brier_by_hand() -> None:
    """Confidence 7: right 1 - 2 x 0.09 = 0.82, wrong 1 - 2 x 0.49 = 0.02; nothing readable: -1."""
    assert sayself_reward(True, 0.7) == pytest.approx(0.82) and sayself_reward(False, 0.7) == pytest.approx(0.02)
    assert sayself_reward(True, None) == -1 and (sayself_reward(True, 1.0), sayself_reward(False, 1.0)) == (1, -1)
    assert brier(True, 0.7) == pytest.approx(0.09) and brier(False, None) == 1
    honest = [
        sum(a * sayself_reward(True, p) + (1 - a) * sayself_reward(False, p) for a in (0.3,)) for p in (0.1, 0.3, 0.6)
    ]
    assert max(honest) == honest[1]  # the best confidence is the accuracy


def test_confidence_rewards_of_replies(models: Models) -> None:
    chat = models["policy"].chat
    own = group(said(chat, "4\nconfidence: 7", 1.0), said(chat, "4\nconfidence: 7", 0.0), said(chat, "4", 1.0))
    step = a_step(models)
    scorer("sayself").part.call([own], step)
    scorer("brier_score").part.call([own], step)
    assert [t.scores["reward/sayself"] for t in own.traces] == pytest.approx([0.82, 0.02, -1])
    assert [t.scores["reward/brier_score"] for t in own.traces] == pytest.approx([-0.09, -0.49, -1])
    assert step.notes.means()["brier"] == pytest.approx(0.29)
    assert step.notes.means()["calibration_error"] == pytest.approx(0.2)  # said 0.7, right in half
    assert step.notes.means()["confidence_stated"] == pytest.approx(2 / 3)


def test_the_calibration_error_by_hand() -> None:
    """0.2 twice, right once: 0.3; 1.0 twice, right twice: 0; so 0.15 of all. 0.9 and 1.0 share a bin."""
    curve = binned([(0.2, 1.0), (0.2, 0.0), (1.0, 1.0), (1.0, 1.0)], 10)
    assert [(one.count, one.accuracy) for one in curve] == [(2, 0.5), (2, 1.0)]
    assert calibration_error(curve) == pytest.approx(0.15)
    assert calibration_error(binned([(0.9, 1.0), (1.0, 1.0)], 10)) == pytest.approx(0.05)
    assert binned([], 10) == [] and calibration_error([]) == 0


def test_denoise_by_hand_and_unbiased() -> None:
    """fp 0.1, fn 0.2: 1 -> 0.9 / 0.7, 0 -> -0.1 / 0.7; for a right reply 0.8 x 9/7 - 0.2 / 7 = 1."""
    got = shaped("denoise(0.1, 0.2)", group(trace(1), trace(0)))[0]
    assert got == pytest.approx([9 / 7, -1 / 7])
    assert 0.8 * got[0] + 0.2 * got[1] == pytest.approx(1) and 0.1 * got[0] + 0.9 * got[1] == pytest.approx(0)
    assert unbiased(0.25, 0, 0) == 0.25
    with pytest.raises(ValueError, match="add up to 1 or more"):
        scorer("denoise(0.5, 0.5)")


def test_clip_centre_and_normalise_by_hand() -> None:
    assert shaped("clip(0.5)", group(trace(1), trace(-2), trace(0.2))) == [[0.5, -0.5, 0.2]]
    assert shaped("centre", group(trace(1), trace(0)), group(trace(2), key="b")) == [[0, -1], [1]]
    # 1, 2, 3: mean 2, sample deviation 1
    assert shaped("normalise", group(trace(1), trace(2)), group(trace(3), key="b")) == [[-1, 0], [1]]
    assert shaped("normalise", group(trace(4), trace(4))) == [[0, 0]]
    assert shaped("group_normalise", group(trace(1), trace(3)))[0] == pytest.approx(
        [-1 / (2**0.5 + 1e-4), 1 / (2**0.5 + 1e-4)]
    )
    assert shaped("group_normalise", group(trace(4), trace(4))) == [[0, 0]]


def test_each_dataset_of_a_mixture_has_its_own_scale() -> None:
    small = group(trace(1), trace(2), trace(3), given={"dataset": "a"})
    large = group(trace(100), trace(200), trace(300), key="b", given={"dataset": "b"})
    part = scorer("per_task").part
    part.call([small, large], a_step())
    assert [[t.scores["reward"] for t in own.traces] for own in (small, large)] == [[-1, 0, 1]] * 2
    again = scorer("per_task").part
    again.state[0].load_state_dict(json.loads(json.dumps(part.state[0].state_dict())))
    later = group(trace(2), given={"dataset": "a"})
    again.call([later], a_step())
    assert later.traces[0].scores["reward"] == 0


def test_a_scheduled_reward_fades() -> None:
    part = scorer("scheduled(correct, 1, 0, over=4)").part
    found = []
    for step in (0, 2, 4, 9):
        own = group(trace(0.7))
        part.call([own], a_step(step=step))
        found.append(own.traces[0].scores["reward"])
    assert found == pytest.approx([1.7, 1.2, 0.7, 0.7])
    with pytest.raises(ValueError, match="no reward called 'format'.*it has none"):
        shaped("scheduled(format, 1, 0)", group(trace(1)))


def test_progress_compares_with_the_past_of_the_prompt() -> None:
    part = scorer("progress(2, decay=0.5)").part
    first, second, other = group(trace(0), trace(1)), group(trace(1)), group(trace(1), key="b")
    for own in (first, second, other):
        part.call([own], a_step())
    assert [t.scores["reward"] for t in first.traces] == [0, 1]  # a first visit has no progress
    assert second.traces[0].scores["reward"] == 1 + 2 * (1 - 0.5)
    assert other.traces[0].scores["reward"] == 1
    assert part.state[0].state_dict() == {"keys": ["a", "b"], "values": [0.75, 1.0]}


def test_every_shape_can_be_read_as_it_is_written() -> None:
    for text in OFF.values():
        assert read_call(text) is not None


@pytest.mark.parametrize("name", SHAPES)
def test_the_state_of_a_shape_fits_in_a_checkpoint(name: str, models: Models) -> None:
    """After a step on real replies its state is JSON, and a copy of it scores the next step alike."""
    entry = load_scorers()[name]
    needs = {"target_length": {"target": 3}, "budget_length": {"budget": 3}, "memory_r": {"warmup": 0}}
    build = partial(entry.build, source("sort"), **{**entry.trial, **needs.get(name, {})})
    part, again = build().part, build().part
    part.call([group(trace(1.0, 3), trace(0.0, 5), key=key) for key in "ab"], a_step(models))
    for item, other in zip(part.state, again.state, strict=True):
        other.load_state_dict(json.loads(json.dumps(item.state_dict())))
        assert other.state_dict() == item.state_dict()
    if not part.state:
        return
    found = []
    for one in (part, again):
        own = group(trace(1.0, 4), trace(0.0, 2), key="a")
        one.call([own], a_step(models, 1))
        found.append([t.scores["reward"].hex() for t in own.traces])
    assert found[0] == found[1]
