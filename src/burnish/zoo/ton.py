"""Think or Not? Selective Reasoning via Reinforcement Learning for Vision-Language Models, TON (arXiv 2505.16854)."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Draw
from burnish.core.seeds import rng
from burnish.core.step import Step
from burnish.core.types import Task
from burnish.method import Method, Option, Phase, chain, frozen, roles
from burnish.methods import opt, register
from burnish.methods.compositions import from_share, until_share
from burnish.papers import Paper

TON = Paper(
    "ton", "2505.16854", "Think or Not? Selective Reasoning via Reinforcement Learning for Vision-Language Models"
)
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
EMPTY = "<think>\n\n</think>"


def without_thought(reply: str) -> str:
    """The reply with an empty thought: between its tags, or without the lines before its line `answer: ...`."""
    if _THOUGHT.search(reply):
        return _THOUGHT.sub(lambda _: EMPTY, reply, count=1)
    lines = reply.splitlines()
    return lines[-1] if lines and lines[-1].startswith("answer:") else reply


def thought_dropout(drawn: Draw, chance: float) -> Draw:
    """Of each demonstration the thought is emptied with this chance, in each step anew."""

    def one(task: Task, step: Step) -> Task:
        demo = task.given.get("demo")
        if not isinstance(demo, str) or rng(step.clock.seed, "thought", step.clock.step, task.key).random() >= chance:
            return task
        step.notes.count("thoughts_emptied", 1)
        return replace(task, given={**task.given, "demo": without_thought(demo)})

    return replace(
        drawn,
        name=f"thought_dropout({chance:g})",
        call=lambda step: [one(task, step) for task in drawn.call(step)],
        ahead=False,
    )


METRICS = (("thoughts_emptied", "What was kept", "demonstrations of a step whose thought was emptied"),)


@register(
    TON,
    family="hybrid",
    summary="Imitate demonstrations of which half have no thought, then GRPO, which keeps thoughts where they pay.",
    when="A model should learn by itself when it need not think.",
    example="burnish train ton --model tiny-omni --task countdown",
    trial={"n": 3},
)
def ton(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    imitate: Annotated[float, Option("Share of the steps that imitate demonstrations.", at_least=0, at_most=1)] = 0.2,
    dropout: Annotated[float, Option("Chance that a demonstration has no thought.", at_least=0, at_most=1)] = 0.5,
) -> Method:
    """stage 1  L = mean over demonstrated tokens of -log pi; with chance `dropout` the thought is "\\n\\n"
    stage 2  r = accuracy, for a reply in the format;   then GRPO

    The empty thought and the chance are the authors' (C: the reward; the dropout from their instructions). Replies
    without tags have their steps in lines before the answer, which are left out. The share of the first stage is ours
    (R); the paper writes the thoughts with the model itself. With dropout 0 it is SFT, then `grpo`.
    """
    first = Phase(
        name="imitate",
        times=until_share(imitate),
        draw=thought_dropout(draw.demos(task), dropout),
        rollout=rollout.given("demo"),
        learn=learn.Learn(learn.imitate(on="demo")),
    )
    second = Phase(
        times=from_share(imitate),
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.behaviour(), credit.ref()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta, norm=learn.seq_mean)),
    )
    return Method(models=roles(ref=frozen("policy")), phases=(first, second))
