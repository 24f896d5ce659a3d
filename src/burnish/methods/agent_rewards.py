"""Agents rewarded by rules: function calls with exploring thoughts, and cited answers under a curriculum."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register
from burnish.reward_functions.resolve import make_reward, read_rewards
from burnish.tasks.rewarded import Rewarded, is_rewarded
from burnish.tasks.source import Source


@register(
    papers.ENTROPY_GRPO,
    family="agents",
    summary="GRPO for function calls with a bonus for the entropy of thoughts.",
    when="A model thinks in <think> before it calls functions, and its thoughts become all alike.",
    example="burnish train entropy_grpo --task calls:1 --reward exact_calls --max-new-tokens 96",
)
def entropy_grpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    alpha: Annotated[float, Option("Weight of the entropy of a thought's tokens.", at_least=0)] = 0.4,
    kappa: Annotated[float, Option("The bonus is at most |A| / kappa.", above=0)] = 2.0,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    temperature: opt.Temperature = 1.0,
    updates: opt.Updates = 1,
) -> Method:
    """Entropy-enhanced GRPO for function calls (FunRL), reconstructed.

    A_t = A + min(alpha H_t, |A| / kappa) at the tokens between <think> and </think>, A elsewhere;  A = GRPO's advantage
    L = mean over replies of mean over tokens of [ -min(rho A_t, clip(rho, 1-eps, 1+eps) A_t) + beta k3 ]
    H_t: the policy's entropy at the token before the update, without gradient

    The paper's bonus could not be read. This one, with alpha = 0.4 and kappa = 2, is that of arXiv 2506.14758
    ("Reasoning with exploration"), restricted to thoughts. alpha = 0 is GRPO. The reward is the task's or --reward;
    `exact_calls` is the paper's kind, `toolrl` a graded one. Left out: data preparation by judges and AST checks.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        credit=chain(
            credit.group_relative(),
            credit.streams("policy", "policy", entropy="entropy"),
            credit.entropy_of_thoughts(alpha, kappa),
            credit.behaviour(),
            credit.ref(),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta, norm=learn.seq_mean), updates=updates
        ),
        models=roles(ref=frozen("policy")),
    )


@register(
    papers.RAG_RL,
    family="agents",
    summary="GRPO on cited answers, first with few distractors, then with all.",
    when="A model answers from retrieved passages, of which many do not help.",
    example="burnish train rag_rl --task passages:1",
    trial={"task": "passages", "n": 3},
)
def rag_rl(
    task: draw.Source,
    *,
    n: opt.GroupSize = 7,
    curriculum: Annotated[
        str, Option("How the level of distractors goes over the run.", choices=draw.ORDERS)
    ] = "min_max",
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.01,
    temperature: opt.Temperature = 1.0,
    updates: opt.Updates = 1,
) -> Method:
    """RAG-RL: GRPO under a curriculum of distractors.

    A question of level l is asked with its j right passages and d = max(l + 2 - j, 0) of its distractors, shuffled;
    levels 1 .. K follow `curriculum` over the run, K = k - 2 for k passages in all, so that level K has all distractors
    r: the reward `rag_rl` (answer, citations, format) unless --reward names another;  A, L as in GRPO

    curriculum = "max" is GRPO with all distractors. The paper has 7 replies to 42 problems a step, one epoch, KL 0.01;
    "min_max" was its best. Rows give `question`, `passages` (the right ones first), `gold` (how many are right)
    and `answer`. The passages that count as the easiest distractors are the first ones: put near ones last.
    """
    return method(
        draw=draw.distracted(task, curriculum),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(rewarded_by(task, "rag_rl")),
        credit=chain(credit.group_relative(), credit.behaviour(), credit.ref()),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta, norm=learn.seq_mean), updates=updates
        ),
        models=roles(ref=frozen("policy")),
    )


def rewarded_by(task: Source, reward: str) -> Source:
    """The task with this reward, unless the run names one of its own."""
    return task if is_rewarded(task) else Rewarded(task, make_reward(read_rewards(reward)))
