"""GUI-R1: A Generalist R1-Style Vision-Language Action Model For GUI Agents (arXiv 2504.10458)."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import Annotated

from burnish import draw
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.compositions import judge_grpo
from burnish.papers import Paper
from burnish.score.compared import Said, compared
from burnish.tasks.pictures.page import Action, read

GUI_R1 = Paper("gui-r1", "2504.10458", "GUI-R1: A Generalist R1-Style Vision-Language Action Model For GUI Agents")
ACCURACY, FORMAT = 0.8, 0.2  # their weights
LEAST_F1 = 0.5


def f1(said: str, wanted: str) -> float:
    """2 |shared| / (|said| + |wanted|) of their words."""
    a, b = Counter(said.split()), Counter(wanted.split())
    return 2 * sum((a & b).values()) / max(1, sum(a.values()) + sum(b.values()))


def matches(done: Action, wanted: Action, near: float) -> bool:
    """One gate: the same kind of action, near enough in place, alike enough in words."""
    if done[0] != wanted[0]:
        return False
    placed = done[0] == "scroll" or math.dist(done[1:3], wanted[1:3]) <= near
    return placed and (done[0] == "click" or f1(done[3], wanted[3]) >= LEAST_F1)


def reward(said: Said, near: float) -> float | None:
    """0.8 matched + 0.2 format for references that are actions; for others the verifier's score."""
    wanted = read(said.reference)
    if wanted is None:
        return None
    done = read(said.answer)
    return 0.0 if done is None else ACCURACY * matches(done, wanted, near) + FORMAT


@register(
    GUI_R1,
    family="policy",
    summary="GRPO on actions of a screen: one gate for kind, place and words, and a little for the format.",
    when="A model that sees should click, type and scroll (`page`).",
    example="burnish train gui_r1 --model tiny-omni --task page:1",
    trial={"n": 3},
)
def gui_r1(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    near: Annotated[float, Option("How far off a place may be, in units of the task.", at_least=0)] = 2.0,
) -> Method:
    """r = 0.8 accurate + 0.2 format; accurate = 1 if the kind of action is right and (click: the place is near; type,
    select, scroll: F1 of the words >= 0.5); then GRPO.

    As in the released code (C), where a place is near within 140 pixels of a point, or in the box where that is known.
    Departures: typing must be near, too, since the tasks here give its place; `near` is in the task's units.
    """
    return judge_grpo(
        draw.prompts(task), task, n, eps, beta, compared("gui_r1", partial(reward, near=near)), by="compared"
    )
