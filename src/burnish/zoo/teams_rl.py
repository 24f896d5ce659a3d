"""TeaMs-RL: Teaching LLMs to Generate Better Instruction Datasets via Reinforcement Learning (arXiv 2403.08694)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn
from burnish.core.schedules import after, before
from burnish.draw.instructor import Instructor, decided, taught
from burnish.judges import rewrites
from burnish.judges.rewrites import OF_REWRITE, Words
from burnish.method import Method, Option, Phase, roles
from burnish.methods import register
from burnish.methods.compositions import models_of
from burnish.papers import Paper
from burnish.rollout.operated import expanded, operated
from burnish.score.judges import read_judge
from burnish.score.judges.battles import unequal

TEAMS_RL = Paper(
    "teams-rl",
    "2403.08694",
    "TeaMs-RL: Teaching LLMs to Generate Better Instruction Datasets via Reinforcement Learning",
)

EQUALITY = {"full": rewrites.EQUALITY, "brief": rewrites.EQUALITY_BRIEF}


@register(
    TEAMS_RL,
    family="imitation",
    summary="A small policy learns by TRPO which operations change an instruction; then SFT on what it makes.",
    when="Seed instructions and a model that rewrites and answers; no RLHF afterwards.",
    example="burnish train teams_rl --teach 5 --words brief",
    trial={"teach": 0, "length": 2, "words": "brief", "executor": "policy(temperature=1, max_tokens=8)"},
)
def teams_rl(
    task: draw.Source,
    *,
    executor: Annotated[str, Option("Who rewrites and answers (docs/judges.md).")] = "policy(temperature=1)",
    judge: Annotated[
        str | None, Option("Who says Equal or Not Equal; without one, texts with the same words are equal.")
    ] = None,
    teach: Annotated[int, Option("Steps in which the instructor alone is trained.", at_least=0)] = 50,
    length: Annotated[int, Option("Operations applied to an instruction.", at_least=1)] = 4,
    delta: Annotated[float, Option("The instructor's trust region.", above=0)] = 0.01,
    gamma: Annotated[float, Option("Discount per operation.", at_least=0, at_most=1)] = 0.99,
    words: Words = "full",
) -> Method:
    """Teaching a model to generate instruction data by reinforcement learning.

    First `teach` steps:  a_k ~ pi(. | a_{k-1}), one of six operations (five in depth, and breadth), which `executor`
    carries out;  r_k = 1 if the judge finds the new instruction Not Equal to the old one, else 0;
    pi moves by TRPO: maximise mean rho A subject to mean KL <= delta, A_k = G_k - the batch's mean G_k
    Then:  SFT on (instruction after `length` operations, the executor's answer), L = -mean over tokens of log pi

    The instructor is a softmax table of 7 x 6 (none or the last operation, one-hot). teach = 0 draws operations
    uniformly: Evol-Instruct. "Diversity" is that single inequality, as in the released code. Departures: the baseline
    is the batch's mean at the same place, not a value network; an instruction that a sequence did not change is left
    out; length, delta and gamma are ours. executor_calls counts the paper's cost.
    """
    instructor = Instructor(delta, gamma)
    who, says = read_judge(executor), read_judge(judge) if judge else None
    learning = Phase(
        name="teach",
        times=before(teach),
        draw=taught(draw.prompts(task), instructor),
        rollout=operated(instructor, who, OF_REWRITE[words], length),
        score=unequal(says, EQUALITY[words]),
        select=decided(instructor),
        learn=learn.Learn(),
    )
    making = Phase(
        times=after(teach),
        draw=draw.prompts(task),
        rollout=expanded(instructor, who, OF_REWRITE[words], length),
        learn=learn.Learn(learn.imitate(on="demo")),
    )
    return Method(models=roles(**models_of(who, says)), phases=(learning, making))
