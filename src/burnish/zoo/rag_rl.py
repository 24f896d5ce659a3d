"""RAG-RL: Advancing Retrieval-Augmented Generation via RL and Curriculum Learning (arXiv 2503.12759)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register
from burnish.reward_functions.resolve import make_reward, read_rewards
from burnish.tasks.rewarded import Rewarded, is_rewarded
from burnish.tasks.source import Source


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
