"""Value Augmented Sampling for Language Model Alignment and Personalization (arXiv 2405.06639)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.step import Step
from burnish.method import Method, Option, chain, frozen, method, roles, trained
from burnish.methods import opt, register
from burnish.methods.weighted import weighted_models
from burnish.papers import Paper
from burnish.rollout.candidates import Guide
from burnish.rollout.guides import heads_after
from burnish.rollout.starts import Reply

VAS = Paper("vas", "2405.06639", "Value Augmented Sampling for Language Model Alignment and Personalization")

Candidates = Annotated[int, Option("How many of the likeliest next tokens the value model scores; 0: all.", at_least=0)]


def centred(values: Tensor) -> Tensor:
    """V - mean over the candidates: [B, k]. Without it, candidates would gain on the tokens that are not scored."""
    return values - values.mean(-1, keepdim=True)


def by_value_models(weights: Mapping[str, float], *, k: int = 20) -> Guide:
    """sum_i w_i V_i(s + a), minus its mean over the k candidates; other tokens keep their log-probs (VAS, arXiv
    2405.06639).
    """
    given = dict(weights)

    def scores(replies: Sequence[Reply], candidates: Tensor, step: Step) -> Tensor:
        return sum(
            (weight * centred(heads_after(replies, candidates, name, step)) for name, weight in given.items()),
            torch.zeros(candidates.shape),
        )

    shown = ", ".join(f"{weight:g} {name}" for name, weight in weights.items())
    reads = frozenset(f"model:{name}.score" for name in weights)
    return Guide(f"by_value_models({shown})", scores if given else None, k, cut=False, reads=reads)


@register(
    VAS,
    family="decoding",
    summary="A model guided by value models: log-probs plus how much better than average the value after a token is.",
    when="You may not train the model, and have a value model of its replies (`vas_value`), or several with weights.",
    trial={"value_model": "tiny", "n": 2, "k": 3},
)
def vas(
    task: draw.Source,
    *,
    value_model: Annotated[
        str, Option("Value models (burnish train vas_value), with the tokenizer of the run's model: a, or a*0.7,b*0.3.")
    ],
    beta: Annotated[float, Option("How strongly the values count; at 0 the model is as it is.", at_least=0)] = 1.0,
    k: Candidates = 20,
    n: opt.Replies = 1,
) -> Method:
    """Value augmented sampling.

    log p(a) = log pi(a) + beta sum_i w_i [ V_i(s + a) - mean over the k candidates of V_i(s + .) ] + const
    for the k likeliest tokens a of pi; the other tokens keep log pi(a)

    The mean is taken out because of these other tokens, as in the authors' code. beta = 0 is pi. Temperature and top_p
    act on the sum. Nothing is trained.
    """
    values = weighted_models(value_model, "value_model")
    weights = {name: beta * share for name, (_, share) in values.items() if beta * share}
    return method(
        draw=draw.prompts(task),
        rollout=rollout.by_candidates(n, by_value_models(weights, k=k)),
        score=score.scoring(task, None),
        select=select.keep_best(n),  # all of them
        learn=learn.Learn(),
        models=roles(**{name: frozen(values[name][0], outputs=1) for name in weights}),
    )


@register(
    VAS,
    family="decoding",
    summary="Train a value model on replies of a model that stays as it is, to guide it (`vas`).",
    when="A reward is at hand for a model that is to be guided, not trained.",
)
def vas_value(
    task: draw.Source,
    *,
    n: opt.Replies = 4,
    lam: opt.Lam = 0.95,
    reward_model: opt.RewardModel = None,
) -> Method:
    """The value model of value augmented sampling: V(y_<=t), the expected reward once pi has finished y_<=t.

    G_T = r for the whole reply,  G_t = (1 - lam) V(y_<=t+1) + lam G_t+1;  gamma = 1
    L = mean over tokens of (V(y_<=t) - G_t)^2 / 2

    V is a linear head, read after token t; G are the targets GAE + V of the paper, for the states after each token.
    lam = 1 regresses the reward. Departure: the state after the last token is trained too, on the reward itself,
    because decoding asks for the value of the token that ends a reply; the clipped loss of the authors' code is left
    out. The product is saved as a sequence-classification model with one label.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=chain(
            credit.streams("value", "policy", score="value"),
            credit.token_rewards(kl=None),
            credit.lambda_returns(lam=lam),
        ),
        learn=learn.Learn(learn.value_fit("returns", output="score", trainee="value")),
        models=roles("value", value=trained(outputs=1), policy=frozen("base"), **score.rm_role(reward_model)),
        product="value",
    )
