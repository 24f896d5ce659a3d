"""GRPO-CARE: Consistency-Aware Reinforcement Learning for Multimodal Reasoning (arXiv 2506.16141)."""

from __future__ import annotations

import math
import re
import statistics
from typing import Annotated

import torch

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.method import Method, Option, chain, ema, method, roles
from burnish.methods import opt, register
from burnish.models.chat import Chat
from burnish.papers import Paper

GRPO_CARE = Paper(
    "grpo-care", "2506.16141", "GRPO-CARE: Consistency-Aware Reinforcement Learning for Multimodal Reasoning"
)
CAP, SLACK, LEAST = 0.95, 0.01, 0.1
_ANSWER = re.compile(r"answer\s*:", re.IGNORECASE)


def answer_at(trace: Trace, chat: Chat, author: str) -> torch.Tensor:
    """[T] bool: the tokens after the last `answer:` of a reply; all of it where it has none."""
    mine = trace.by(author)
    places = mine.nonzero()[:, 0]
    reply = trace.tokens[places]
    last = len(_ANSWER.findall(chat.text(reply)))
    if last:
        low, high = 0, len(reply)
        while low < high:  # the fewest tokens whose text has them all
            middle = (low + high) // 2
            low, high = (low, middle) if len(_ANSWER.findall(chat.text(reply[:middle]))) >= last else (middle + 1, high)
        mine[places[: min(low, len(reply) - 1)]] = False
    return mine


def bonuses(rewards: list[float], confidences: list[float], weight: float) -> list[float]:
    """weight x reward for the accurate replies whose confidence is at least the accurate ones' mean, less 0.01.

    accurate: a reward above 0.1 and not below the group's mean
    """
    mean = statistics.fmean(rewards)
    accurate = [r > LEAST and r >= mean for r in rewards]
    sure = [c for c, yes in zip(confidences, accurate, strict=True) if yes]
    least = statistics.fmean(sure) - SLACK if sure else 0.0
    return [weight * r if yes and c >= least else 0.0 for r, c, yes in zip(rewards, confidences, accurate, strict=True)]


@supplies("score:care")
def consistency_bonus(weight: float, *, author: str = "policy") -> Part:
    """scores["care"] = reward + bonus; confidence = min(0.95, exp(mean log ref of the tokens of the answer))."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.models[author].chat
        for group in groups:
            masks = [answer_at(trace, chat, author) for trace in group.traces]
            sure = [
                min(CAP, math.exp(float(trace.streams["ref"][mask].mean()))) if bool(mask.any()) else 0.0
                for trace, mask in zip(group.traces, masks, strict=True)
            ]
            rewards = [trace.scores["reward"] for trace in group.traces]
            for trace, bonus in zip(group.traces, bonuses(rewards, sure, weight), strict=True):
                trace.scores["care"] = trace.scores["reward"] + bonus
        return groups

    return Part(
        name="consistency_bonus",
        call=call,
        reads=frozenset({"score:reward", "stream:ref", f"tokens:{author}"}),
        writes=frozenset({"score:care"}),
    )


@register(
    GRPO_CARE,
    family="policy",
    summary="GRPO with a bonus for right replies whose answer a slow copy of the policy finds likely after them.",
    when="Right answers follow from reasoning that does not lead to them.",
    trial={"n": 3},
)
def grpo_care(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    bonus: Annotated[float, Option("Share of the reward that a consistent reply earns besides.", at_least=0)] = 0.5,
    decay: Annotated[float, Option("Of the slow copy, at each of its updates.", at_least=0, at_most=1)] = 0.995,
    every: Annotated[int, Option("Steps between two updates of the slow copy.", at_least=1)] = 10,
) -> Method:
    """c_i = min(0.95, exp(mean over the answer's tokens of log pi_slow));   accurate: r_i > 0.1 and r_i >= mean r
    r'_i = r_i + bonus r_i 1[accurate, c_i >= mean c of the accurate - 0.01];   then GRPO on r', without a KL

    pi_slow is an average of the policy's weights (decay 0.995 every 10 steps), as in the released code (C). With
    bonus 0 it is `grpo` with beta 0.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.ref(), consistency_bonus(bonus), credit.group_relative(score="care"), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean)),
        models=roles(ref=ema("policy", decay, every=every)),
    )
