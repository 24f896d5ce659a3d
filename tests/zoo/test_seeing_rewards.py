"""Rewards of papers on models that see, by hand, and what they are when their idea is switched off."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from burnish.core.schedules import at
from burnish.core.types import Clock, Task, Trace, Turn
from burnish.methods.table import find
from burnish.score.compared import Said
from burnish.tasks.table import source
from burnish.verifiers.boxes import boxes_of, points_of
from burnish.verifiers.overlap import iou
from burnish.zoo import gui_r1, infigui, r1_aqa, reason_rft, se_gui, visual_rft, vprl
from burnish.zoo.cls_rl import alone
from burnish.zoo.grpo_care import answer_at, bonuses
from burnish.zoo.perception_r1 import assigned
from burnish.zoo.reason_rft import tolerant
from burnish.zoo.vision_r1 import cut, guided
from burnish.zoo.vision_r1 import reward as vision_reward

A, B, FAR = (0.0, 0.0, 4.0, 4.0), (8.0, 8.0, 12.0, 12.0), (12.0, 0.0, 16.0, 4.0)
NEAR_A = (0.0, 0.0, 4.0, 5.0)  # IoU with A: 16 / 20


def said(answer: str, reference: str, right: bool = False, step: int = 0, **given: Any) -> Said:
    task = Task("question", "?", {"answer": reference, **given}, given.pop("key", "k"))
    return Said(task, f"answer: {answer}", answer, right, float(right), Clock(step, 10))


def test_visual_rft_by_hand() -> None:
    """Two boxes wanted, three found. 0.9 takes A exactly, 0.6 overlaps A again, which is taken, 0.3 misses.

    R_IoU = 1 / 3;  R_conf = (0.9 + (1 - 0.6) + (1 - 0.3)) / 3 = 2 / 3
    """
    found = [(A, 0.9), (NEAR_A, 0.6), (FAR, 0.3)]
    assert visual_rft.detection(found, [A, B]) == pytest.approx(1 / 3 + 2 / 3)
    # a box at 0.8 counts its overlap, one at exactly one half does not: 8 of 16
    assert visual_rft.detection([(NEAR_A, 0.5)], [A]) == pytest.approx(0.8 + 0.5)
    assert visual_rft.detection([((0.0, 0.0, 4.0, 2.0), 0.5)], [A]) == pytest.approx(0.0 + 0.5)
    assert visual_rft.reward(said("0 0 4 4 9", "0 0 4 4 9")) == pytest.approx(1 + 0.9 + 1)
    assert visual_rft.reward(said("cat", "0 0 4 4 9")) == 0.0
    # off: a class is right or wrong, and 1 for an answer
    assert visual_rft.reward(said("cat", "cat", right=True)) == 2.0 and visual_rft.reward(said("", "cat")) == 0.0


def test_perception_r1_takes_the_best_assignment() -> None:
    """NEAR_A for A (0.8) and A for NEAR_A (0.8), or each for itself: 1 + 1. One object: its IoU squared."""
    assert assigned([A, NEAR_A], [NEAR_A, A]) == pytest.approx(1.0)
    assert assigned([NEAR_A], [A]) == pytest.approx(0.64) == pytest.approx(iou(NEAR_A, A) ** 2)
    assert assigned([NEAR_A, FAR, B], [A, B]) == pytest.approx((0.64 + 1) / 3)
    assert assigned([], [A]) == 0.0


def test_vision_r1_tightens_its_bounds() -> None:
    """The cut of 0.6 is 0.6 by (0.5, 0.75) and 0 by (0.75, 0.9). A box at 0.8 counts 1, then 0.8."""
    assert [cut(0.6, 0.5, 0.75), cut(0.6, 0.75, 0.9), cut(0.95, 0.75, 0.9)] == [0.6, 0.0, 1.0]
    assert guided([NEAR_A], [A], (0.5, 0.75)) == 2.0 and guided([NEAR_A], [A], (0.75, 0.9)) == pytest.approx(1.8)
    # one of two is found: precision 1, recall 0.5, which early counts 0.5 and late nothing
    assert guided([A], [A, B], (0.5, 0.75)) == pytest.approx(1.5) and guided([A], [A, B], (0.75, 0.9)) == 1.0
    # off: bounds of 0 and 1 leave the values
    assert guided([NEAR_A], [A], (0.0, 1.0)) == pytest.approx(0.8 + 1.0)
    early, late = (vision_reward(said("0 0 4 5", "0 0 4 4", step=step), 0.5) for step in (4, 5))
    assert early == 3.0 and late == pytest.approx(2.8)


def test_gui_r1_is_one_gate() -> None:
    """Click near: 0.8 + 0.2; far or another kind: 0.2; no action: 0. Typing one of two words: F1 is 2 / 3."""
    rewards = [gui_r1.reward(said(text, "click 5 7"), 2.0) for text in ("click 6 8", "click 9 7", "type 5 7 x", "hm")]
    assert rewards == pytest.approx([1.0, 0.2, 0.2, 0.0])
    assert gui_r1.f1("a b", "a") == pytest.approx(2 / 3) and gui_r1.f1("a b c d", "a") == pytest.approx(0.4)
    assert gui_r1.reward(said("type 5 7 42", "type 5 7 42"), 0.0) == 1.0
    assert gui_r1.reward(said("type 5 7 41", "type 5 7 42"), 0.0) == pytest.approx(0.2)
    assert gui_r1.reward(said("3", "3", right=True), 2.0) is None


def test_se_gui_pays_for_distance() -> None:
    """A box in the middle: d_max = 8 sqrt 2, a fifth of the side off is 1 - (3.2 / 11.314)^2 = 0.92."""
    assert se_gui.dense((8 + 3.2, 8), (8, 8), 16) == pytest.approx(0.92)
    assert se_gui.dense((16, 16), (8, 8), 16) == pytest.approx(0.0) and se_gui.dense((8, 8), (8, 8), 16) == 1.0
    assert se_gui.reward(said("click 8 8", "click 8 8", right=True), 1.0) == 3.0
    assert se_gui.reward(said("click 8 8", "click 8 8", right=True), 0.0) == 2.0  # off: hit and format
    assert se_gui.reward(said("type 8 8 x", "click 8 8"), 1.0) == 1.0


def test_infigui_by_hand() -> None:
    """N = 2, the second hits: 1 + 1 / sqrt 4. N = 4 without a hit: 1 - 1 / 4. One point: 2 or 0."""
    box = "0 0 4 4"
    assert infigui.reward(said("9 9 2 2", box)) == pytest.approx(1.5)
    assert infigui.reward(said("9 9 8 7 5 12 14 9", box)) == pytest.approx(0.75)
    assert infigui.reward(said("2 2", box)) == 2.0 and infigui.reward(said("9 9", box)) == 0.0
    assert infigui.reward(said("5 5 6 6 7 7", box)) == -1.0 == infigui.reward(said("a place", box))
    assert infigui.collinear([(0, 0), (2, 1), (4, 2)]) and not infigui.collinear([(0, 0), (2, 1), (4, 3)])


def test_vprl_pays_for_progress() -> None:
    lake = (3, (4,), 0, 8)
    given = {"problem": lake, "key": "frames x"}
    frames = ("<c0><c2><c0><c0><c1><c0><c0><c0><c3>", "<c2><c0><c0><c0><c1><c0><c0><c0><c3>", "<c2>")
    replies = [replace(said(text, "?"), task=Task("question", "?", given, "frames x")) for text in frames]
    assert [vprl.reward(one) for one in replies] == [1.0, 0.0, -5.0]
    assert vprl.reward(said("3", "3")) is None


def test_no_thinking_wants_the_label_and_nothing_else() -> None:
    whole = said("b", "b", right=True)
    assert alone(whole) == 1.0 and alone(replace(whole, text="b")) == 1.0
    assert (
        alone(replace(whole, text="it is blue\nanswer: b"))
        == 0.0
        == alone(replace(whole, right=False, answer="c", text="c"))
    )


def test_care_gives_the_bonus_to_the_consistent_half() -> None:
    """Rewards 1, 1, 0, 1: mean 0.75. The accurate ones' confidences 0.9, 0.5, 0.7 have the mean 0.7, less 0.01."""
    assert bonuses([1.0, 1.0, 0.0, 1.0], [0.9, 0.5, 0.9, 0.7], 0.5) == [0.5, 0.0, 0.0, 0.5]
    assert bonuses([1.0, 1.0], [0.9, 0.5], 0.0) == [0.0, 0.0] and bonuses([0.1, 0.1], [0.9, 0.9], 0.5) == [0.0, 0.0]


def test_care_asks_about_the_tokens_of_the_answer() -> None:
    from burnish.models.known_models import resolve
    from burnish.models.load import load_chat

    chat = load_chat(resolve("tiny"))
    prompt = Turn(torch.tensor([3, 5]), "task")
    reply = Turn(chat.reply("2+2=4\nanswer: 42"), "policy", parent=prompt)
    trace = Trace((prompt, reply))
    mask = answer_at(trace, chat, "policy")
    assert chat.text(trace.tokens[mask]).strip() == "42" and not bool(mask[:2].any())


def test_boxes_and_points_are_numbers_and_nothing_else() -> None:
    assert boxes_of("1 2 3 4, 5 6 7 8 9") == [((1.0, 2.0, 3.0, 4.0), 1.0), ((5.0, 6.0, 7.0, 8.0), 0.9)]
    assert [boxes_of(text) for text in ("", "1 2 3", "1 2 3 4;", "1 2 3 x", "1e9 2 3 4")] == [None] * 5
    assert points_of("1 2, 3 4") == [(1.0, 2.0), (3.0, 4.0)] and points_of("1 2 3") is None


@pytest.mark.parametrize(
    "name", ["visual_rft", "perception_r1", "vision_r1", "gui_r1", "se_gui", "infigui_aepo", "vprl", "grpo_care"]
)
def test_they_learn_on_the_same_terms_as_grpo(name: str) -> None:
    """Their idea is the reward: the terms are those of grpo, but for the KL of two of them, which have none."""
    own = [term.name for term in find(name).build(source("add")).phases[0].learn.terms]  # type: ignore[union-attr]
    assert own == (["pg"] if name in ("infigui_aepo", "grpo_care") else ["pg", "kl"])


def test_reason_rft_falls_off_with_the_error() -> None:
    """Right up to 5%, wrong from 20%; half way, at 12.5%, one half. Equal bounds are right or wrong."""
    assert [tolerant(x, 100.0, 0.05, 0.2) for x in (105.0, 112.5, 120.0)] == pytest.approx([1.0, 0.5, 0.0])
    assert [tolerant(x, 100.0, 0.1, 0.1) for x in (109.0, 111.0)] == [1.0, 0.0]
    assert (
        reason_rft.reward(said("nan", "3"), 0.05, 0.2) == 0.0 and reason_rft.reward(said("b", "b"), 0.05, 0.2) is None
    )
    phases = find("reason_rft").build(source("add"), imitate=0.5).phases
    times = [[at(phase.times, Clock(step, 4)) for step in range(4)] for phase in phases]
    assert times == [[1, 1, 0, 0], [0, 0, 1, 1]]


def test_r1_aqa_adds_the_format() -> None:
    assert r1_aqa.reward(said("a", "a", right=True)) == 2.0 and r1_aqa.reward(said("a", "b")) == 1.0
    assert r1_aqa.reward(said("", "b")) == 0.0


def test_the_kl_of_othink_rises_to_its_cap() -> None:
    """From 0 to 0.04 over eleven steps: 0.016 at step 4. Equal ends are the constant of grpo."""

    def coef(step: int, **ends: float) -> float:
        terms = find("othink_mr1").build(source("add"), **ends).phases[0].learn.terms  # type: ignore[union-attr]
        schedule = next(term.coef for term in terms if term.name == "kl")
        return float(schedule(Clock(step, 11)) if callable(schedule) else schedule)

    assert coef(4) == pytest.approx(0.016) and coef(10) == pytest.approx(0.04)
    assert math.isclose(coef(0, beta=0.04), coef(7, beta=0.04))
