"""Diverse Preference Optimization (arXiv 2501.18101)."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.step import Step
from burnish.core.types import Trace
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.select.lists import Diversity, by_probability

DIVPO = Paper("divpo", "2501.18101", "Diverse Preference Optimization")


def by_words(traces: list[Trace], step: Step) -> list[float]:
    """The mean over a reply's tokens of 1 / (the share of the group's replies that have the token)."""
    bags = [set(turn.tokens.tolist()) for trace in traces for turn in trace.turns[-1:]]
    counts = Counter(token for bag in bags for token in bag)
    return [sum(len(bags) / counts[token] for token in bag) / max(1, len(bag)) for bag in bags]


DIVERSITY: dict[str, Diversity] = {"probability": by_probability, "words": by_words}


@register(
    DIVPO,
    family="preference",
    summary="Online DPO that prefers a rare good reply to a common bad one.",
    when="Online DPO makes replies all alike.",
)
def divpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 16,
    rho: Annotated[float, Option("Width of both bands, as a share of the reward range.", at_least=0, at_most=1)] = 0.3,
    diversity: Annotated[str, Option("What makes a reply unusual.", choices=tuple(DIVERSITY))] = "probability",
    beta: opt.Beta = 0.1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """DivPO: another choice of pairs for online DPO.

    w = the most diverse reply within rho (r_max - r_min) of the best;  l = the least diverse so near to the worst
    L = -log s( beta [lr_w - lr_l] ),  mean over pairs;  lr = log pi(y|x) - log ref(y|x)

    diversity: probability takes -log pi(y|x), words the rarity of a reply's tokens in its group. rho = 0 compares the
    best with the worst. rho = 0.3 is that of one of the paper's runs; the bands are of values, one of its two
    readings.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        select=select.diverse_vs_usual(rho, DIVERSITY[diversity]),
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(beta)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
