"""COPO: Consistency-Aware Policy Optimization (arXiv 2508.04138).

Two signals, one for groups whose answers differ and one for groups that agree (COPO, arXiv 2508.04138).

Entropy of the final answers to one prompt.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.baselines import spread
from burnish.credit.components import normalised
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.score.judge import reply_text
from burnish.verifiers.final_answer import final_answer

COPO = Paper("copo", "2508.04138", "COPO: Consistency-Aware Policy Optimization")

METRICS = (("local_weight", "Credit", "mean weight of the within-group advantage against the batch's"),)


@supplies("stream:adv_global")
def local_and_global(*, sharpness: float, centre: float, gate: float, score: str = "reward", eps: float = 1e-6) -> Part:
    """Streams "adv" = w A_local and "adv_global" = (1 - w) A_global.

        A_local   (r_i - mean r) / (std r + eps) in the group
        A_global  (R(q) - mean R) / (std R + eps) over the prompts of the batch, R(q) the mean score of prompt q's
                  replies
        w         sigmoid(sharpness (H(q) - centre)), H(q) the entropy of the group's answers (score "answer_entropy");
                  0 for a reply that scores `gate` or less

    A clipped surrogate is homogeneous in A for w >= 0, so w L(A) = L(w A): the blend of losses is a sum of two terms.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        means = [sum(trace.scores[score] for trace in group.traces) / len(group.traces) for group in groups]
        for group, across in zip(groups, normalised(means, eps), strict=True):
            local = normalised([trace.scores[score] for trace in group.traces], eps)
            for trace, advantage in zip(group.traces, local, strict=True):
                x = sharpness * (trace.scores["answer_entropy"] - centre)
                w = 0.0 if trace.scores[score] <= gate else sigmoid(x)
                spread(trace, w * advantage)
                spread(trace, (1 - w) * across, "adv_global")
                step.notes.add("local_weight", w)
        return groups

    return Part(
        name="local_and_global",
        call=call,
        reads=frozenset({f"score:{score}", "score:answer_entropy"}),
        writes=frozenset({"stream:adv", "stream:adv_global"}),
    )


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x)), without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def bits(answers: Iterable[str]) -> float:
    """Entropy of the answer frequencies in bits: 0 if all agree, log2 n if all n differ."""
    counts = Counter(answers)
    n = sum(counts.values())
    return sum(c / n * math.log2(n / c) for c in counts.values())


@supplies("score:answer_entropy")
def answer_entropy(*, author: str = "policy", reader: str = "policy") -> Part:
    """scores["answer_entropy"] = entropy of the group's final answers in bits, the same for all its traces."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.models[reader].chat
        for group in groups:
            right = str(group.task.given.get("answer", ""))
            entropy = bits(final_answer(reply_text(trace, chat), right) for trace in group.traces)
            for trace in group.traces:
                trace.scores["answer_entropy"] = entropy
            step.notes.add("answer_entropy", entropy)
        return groups

    return Part(
        name="answer_entropy",
        call=call,
        reads=frozenset({f"tokens:{author}"}),
        writes=frozenset({"score:answer_entropy"}),
    )


@register(
    COPO,
    family="policy",
    summary="Groups that agree learn from the batch, groups that differ from themselves.",
    when="Many prompts are answered alike by all replies, right or wrong, and GRPO would learn nothing from them.",
)
def copo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 6,
    eps: opt.ClipRange = 0.2,
    dual: opt.DualClip = 3.0,
    sharpness: Annotated[float, Option("How sharply w changes with entropy.", at_least=0)] = 5.0,
    centre: Annotated[float, Option("The entropy, in bits, at which w is 1/2.")] = 1.0,
    gate: Annotated[float, Option("Replies that score this or less follow the global signal alone.")] = 0.0,
    updates: opt.Updates = 1,
) -> Method:
    """COPO: a local and a global signal, blended by how much the answers to a prompt differ.

    A_local = (r_i - mean r) / (std r + 1e-6) in the group
    A_global = (R(q) - mean R) / (std R + 1e-6) over the prompts,   R(q) = mean r
    w = sigmoid(sharpness (H - centre)), 0 where r_i <= gate;   H(q) = entropy in bits of the final answers
    L = mean over replies of mean over tokens of [ w clipped(rho, A_local) + (1 - w) clipped(rho, A_global) ]
    clipped: PPO's, with the dual clip where A < 0.

    The constants and the gate are those of the authors' script ("soft with zero"); a survey reports 20 and 1.5 for
    sharpness and centre. No KL.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.verify(task), answer_entropy()),
        credit=chain(local_and_global(sharpness=sharpness, centre=centre, gate=gate), credit.behaviour()),
        learn=learn.Learn(
            learn.pg_clip(eps, dual=dual, norm=learn.seq_mean),
            learn.pg_clip(eps, dual=dual, norm=learn.seq_mean, adv="adv_global", name="global"),
            updates=updates,
        ),
        models=roles(),
    )
