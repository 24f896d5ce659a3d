"""RAG-RL: Advancing Retrieval-Augmented Generation via RL and Curriculum Learning (arXiv 2503.12759).

A curriculum of distractors: how many passages besides the right ones a question is asked with (RAG-RL).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core import randomness
from burnish.core.parts import Draw
from burnish.core.step import Step
from burnish.core.types import Task
from burnish.draw.tasks import prompts
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register
from burnish.reward_functions.resolve import make_reward, read_rewards
from burnish.tasks.passages import with_distractors
from burnish.tasks.source import Source
from burnish.tasks.task_set import rewarded, task_set

METRICS = (("distractors", "What was sampled", "mean number of passages that do not help, over the questions asked"),)

Levels = Callable[[float, int], int]  # (share of the run that is over, in (0, 1]; the hardest level) -> level

LEVELS: dict[str, Levels] = {
    "max": lambda share, hardest: hardest,
    "linear": lambda share, hardest: max(1, math.ceil(hardest * share - 1e-9)),
    "min_max": lambda share, hardest: 1 if share <= 0.5 else hardest,
}
ORDERS = (*LEVELS, "linear_shuffled", "min_max_shuffled")


def distractors_at(level: int, gold: int, most: int) -> int:
    """d = min(max(level + 2 - gold, 0), most): the easiest level has one distractor for two right passages."""
    return min(max(level + 2 - gold, 0), most)


def distracted(source: Source, order: str) -> Draw:
    """The next tasks, each asked with its right passages and as many distractors as its level has, shuffled.

    order: how the level goes from 1 to K = passages - 2 over the run: "max" always K, "linear" ceil(K i / n), "min_max"
    1 in the first half and K in the second; "..._shuffled" the same levels in a random order over the run
    """
    plain = prompts(source, "question", "passages", "gold")
    rule, shuffled = order.removesuffix("_shuffled"), order.endswith("_shuffled")

    def call(step: Step) -> list[Task]:
        return [_at(task, i, step) for i, task in enumerate(plain.call(step))]

    def _at(task: Task, i: int, step: Step) -> Task:
        clock = step.clock
        share = (clock.step + 1) / max(1, clock.of)
        if shuffled:
            share = 1 - randomness.rng(clock.seed, "distractors", clock.step, i).random()
        gold, passages = int(task.given["gold"]), len(task.given["passages"])
        level = LEVELS[rule](min(1.0, share), max(1, passages - 2))
        many = distractors_at(level, gold, passages - gold)
        step.notes.add("distractors", many)
        found = with_distractors(task, many)
        kept = {key: value for key, value in found.given.items() if key not in ("demo", "mistake")}  # other numbers
        return replace(found, given=kept)

    return replace(plain, call=call, ahead=False)


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
    curriculum: Annotated[str, Option("How the level of distractors goes over the run.", choices=ORDERS)] = "min_max",
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.01,
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
        draw=distracted(task, curriculum),
        rollout=rollout.sample(n),
        score=score.verify(rewarded_by(task, "rag_rl")),
        credit=chain(credit.group_relative(), credit.behaviour(), credit.ref()),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta, norm=learn.seq_mean), updates=updates
        ),
        models=roles(ref=frozen("policy")),
    )


def rewarded_by(task: Source, reward: str) -> Source:
    """The task with this reward, unless the run names one of its own."""
    own = task_set(task).rewarded_by == "function"
    return task if own else rewarded(task, make_reward(read_rewards(reward)))
