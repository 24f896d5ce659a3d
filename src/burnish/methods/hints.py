"""Hints in the prompt, where a task is too hard."""

from __future__ import annotations

from burnish.cast.roles import stage
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.credit.streams import behaviour
from burnish.draw.tasks import demos
from burnish.learn.learn import Learn
from burnish.learn.terms import pg_clip
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.hinted import hinted
from burnish.tasks.source import Source


@register(
    family="hybrid",
    catalogue=("ghpo",),
    title="GHPO: Adaptive Guidance for Stable and Efficient LLM Reinforcement Learning",
    arxiv="2507.10628",
    summary="GRPO that adds the beginning of the solution to prompts nobody solved.",
    when="Some prompts are too hard to be solved even once, and their solutions are known.",
    trial={"n": 2, "cold_start": 0},
)
def ghpo(
    task: Source, *, n: int = 8, stages: int = 3, hint_step: float = 0.25, cold_start: int = 20, eps: float = 0.2, temperature: float = 1.0
) -> Method:  # fmt: skip
    """GHPO: GRPO; a group in which every reply is wrong is sampled again with a hint in its prompt.

    hint = the first round(omega length) characters of the solution, omega = 0.25, 0.5, 0.75 in turn until a reply is right
    A_i = (r_i - mean r) / (std r + 1e-4);  L = mean over sampled tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A); no KL

    The hint belongs to the prompt, which is the one the loss sees; a group that stays wrong has advantage 0. In the first
    `cold_start` steps there are no hints. Departures: the reward is the verifier's score alone (the paper adds 0.5 for the format), and the
    words around the hint are ours.
    n: replies sampled for each prompt, at each stage. stages: hints tried, one after the other.
    hint_step: how much of the solution each stage adds. cold_start: steps without hints at the start. eps: the clip range.
    """
    shares = [hint_step * (k + 1) for k in range(stages)]
    return method(
        draw=demos(task),
        rollout=hinted(task, n, shares, start=cold_start, temperature=temperature),
        credit=chain(group_relative(eps=1e-4), behaviour(), member("pg", "policy")),
        learn=Learn(pg_clip(eps), temperature=temperature),
        cast=stage(),
    )
