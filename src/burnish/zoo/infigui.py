"""InfiGUI-G1: Advancing GUI Grounding with Adaptive Exploration Policy Optimization (arXiv 2508.05731)."""

from __future__ import annotations

import math

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.score.compared import Said, compared
from burnish.verifiers.boxes import boxes_of, points_of
from burnish.verifiers.overlap import Box

INFIGUI = Paper(
    "infigui-aepo",
    "2508.05731",
    "InfiGUI-G1: Advancing GUI Grounding with Adaptive Exploration Policy Optimization",
)
Points = list[tuple[float, float]]


def explored(points: Points, hit: Box) -> float:
    """1 / sqrt(N k) if the k-th of N points is the first in the box; else -1 / N."""
    inside = [hit[0] <= x <= hit[2] and hit[1] <= y <= hit[3] for x, y in points]
    n = len(points)
    return 1 / math.sqrt(n * (inside.index(True) + 1)) if any(inside) else -1 / n


def collinear(points: Points) -> bool:
    """Whether three of them lie exactly on a line."""
    return any(
        (b[0] - a[0]) * (c[1] - a[1]) == (c[0] - a[0]) * (b[1] - a[1])
        for i, a in enumerate(points)
        for j, b in enumerate(points[i + 1 :], i + 1)
        for c in points[j + 1 :]
    )


def reward(said: Said) -> float | None:
    """1 + accuracy of a list of points; -1 for a list that cannot be read or has three on a line."""
    wanted = boxes_of(said.reference)
    if wanted is None or len(wanted) != 1:
        return None
    points = points_of(said.answer)
    return -1.0 if not points or collinear(points) else 1.0 + explored(points, wanted[0][0])


@register(
    INFIGUI,
    family="policy",
    summary="Several guesses in one reply: early hits and few guesses earn more, lists on a line nothing.",
    when="A model that points should try several places before it settles on one (`boxes`).",
    example="burnish train infigui_aepo --model tiny-omni --task boxes:2",
    trial={"n": 3},
)
def infigui_aepo(
    task: draw.Source, *, n: opt.GroupSize = 8, eps_low: opt.ClipLow = 0.2, eps_high: opt.ClipHigh = 0.4
) -> Method:
    """r = 1 + a for N points x1 y1 x2 y2 ..., a = 1 / sqrt(N k) if the k-th is the first in the box, else -1 / N;
    r = -1 for a fault of form or three points exactly on a line.   A_i = r_i - mean of the other r_j

    N = 1: 2 for a hit, 0 for a miss. As in the released code (C), which trains by RLOO without a KL.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.verify(task), compared("infigui_aepo", reward)),
        credit=chain(credit.leave_one_out(score="compared"), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps_low, eps_high)),
        models=roles(),
    )
