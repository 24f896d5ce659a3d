"""OpenChat: Advancing Open-source Language Models with Mixed-Quality Data (arXiv 2309.11235)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import torch

from burnish import draw, learn, rollout
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.method import Method, Option, method, roles
from burnish.methods import register
from burnish.papers import Paper

C_RLFT = Paper("c-rlft", "2309.11235", "OpenChat: Advancing Open-source Language Models with Mixed-Quality Data")


@supplies("stream:weight")
def class_weights(weights: Mapping[str, float], *, author: str = "demo") -> Part:
    """What a token of each class counts, as stream "weight"; a trace's class is its tag.

        w_t = weights[class of the trace] x N / (sum of weights over the batch's N tokens by the author)

    so that a mean over the N tokens is the weighted mean sum w l / sum w of the whole batch.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        found = [next(weights[tag] for tag in weights if tag in trace.tags) for trace in traces]
        sizes = [int(trace.by(author).sum()) for trace in traces]
        total = sum(weight * size for weight, size in zip(found, sizes, strict=True))
        for trace, weight in zip(traces, found, strict=True):
            trace.streams["weight"] = torch.full((len(trace),), weight * sum(sizes) / total if total else 0.0)
        return groups

    return Part(
        name=f"class_weights({', '.join(f'{tag} {w:g}' for tag, w in weights.items())})",
        call=call,
        reads=frozenset({f"tag:{tag}" for tag in weights} | {f"tokens:{author}"}),
        writes=frozenset({"stream:weight"}),
    )


@register(
    C_RLFT,
    family="imitation",
    summary="SFT on expert and other replies, told apart by a condition and weighed by class.",
    when="Your data are of mixed quality and you know which part is which, but have no preference pairs.",
)
def c_rlft(
    task: draw.Source,
    *,
    expert_weight: Annotated[float, Option("What a token of a chosen reply counts.", at_least=0)] = 1.0,
    other_weight: Annotated[float, Option("What a token of a rejected reply counts.", at_least=0)] = 0.1,
    expert: Annotated[str, Option("Words before the prompt of a chosen reply, and of every question later.")] = "",
    other: Annotated[str, Option("Words before the prompt of a rejected reply.")] = "[other]",
) -> Method:
    """Conditioned RL fine-tuning on data of mixed quality: chosen replies are one class, rejected ones the other.

    L = sum over reply tokens of w_c (-log pi(y_t | x, c, y_<t)) / sum over reply tokens of w_c,  c the reply's class

    The weights are those of the released training, 1 : 0.1; the paper derives exp(r_c / beta) from a KL-regularised
    objective, which gives the same ratio for beta = 0.39. Departure: the expert's condition is the bare prompt
    unless words are given, so that the product is asked like any other model; the paper marks both classes ("GPT4
    User:", "GPT3 User:").
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.join(
            rollout.under(expert, rollout.given("chosen")), rollout.under(other, rollout.given("rejected"))
        ),
        credit=class_weights({"chosen": expert_weight, "rejected": other_weight}),
        learn=learn.Learn(learn.imitate_weighted(on="demo")),
        models=roles(),
    )
