"""GHPO: Adaptive Guidance for Stable and Efficient LLM Reinforcement Learning (arXiv 2507.10628)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

GHPO = Paper("ghpo", "2507.10628", "GHPO: Adaptive Guidance for Stable and Efficient LLM Reinforcement Learning")


@register(
    GHPO,
    family="hybrid",
    summary="GRPO that adds the beginning of the solution to prompts nobody solved.",
    when="Some prompts are too hard to be solved even once, and their solutions are known.",
    trial={"n": 2, "cold_start": 0},
)
def ghpo(
    task: draw.Source,
    *,
    n: Annotated[int, Option("Replies sampled for each prompt, at each stage.", at_least=2)] = 8,
    stages: Annotated[int, Option("Hints tried, one after the other.", at_least=1)] = 3,
    hint_step: Annotated[float, Option("How much of the solution each stage adds.", above=0, at_most=1)] = 0.25,
    cold_start: Annotated[int, Option("Steps without hints at the start.", at_least=0)] = 20,
    eps: opt.ClipRange = 0.2,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """GHPO: GRPO; a group in which every reply is wrong is sampled again with a hint in its prompt.

    hint = the first round(omega length) characters of the solution
    omega = 0.25, 0.5, 0.75 in turn until a reply is right;   A_i = (r_i - mean r) / (std r + 1e-4)
    L = mean over sampled tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A); no KL

    The hint belongs to the prompt, which is the one the loss sees; a group that stays wrong has advantage 0. In the
    first `cold_start` steps there are no hints. Departures: the reward is the verifier's score alone (the paper
    adds 0.5 for the format), and the words around the hint are ours.
    """
    shares = [hint_step * (k + 1) for k in range(stages)]
    return method(
        draw=draw.demos(task),
        rollout=rollout.hinted(task, n, shares, start=cold_start, temperature=temperature),
        credit=chain(credit.group_relative(eps=1e-4), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps)),
        models=roles(),
    )
