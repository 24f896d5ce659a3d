"""OpenChat: Advancing Open-source Language Models with Mixed-Quality Data (arXiv 2309.11235)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout
from burnish.method import Method, Option, method, roles
from burnish.methods import register
from burnish.papers import Paper

C_RLFT = Paper("c-rlft", "2309.11235", "OpenChat: Advancing Open-source Language Models with Mixed-Quality Data")


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
        credit=credit.class_weights({"chosen": expert_weight, "rejected": other_weight}),
        learn=learn.Learn(learn.imitate_weighted(on="demo")),
        models=roles(),
    )
