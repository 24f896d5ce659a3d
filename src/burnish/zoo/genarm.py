"""GenARM: Reward Guided Generation with Autoregressive Reward Model for Test-time Alignment (arXiv 2410.08193)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.given_pairs import from_pairs
from burnish.methods.weighted import weighted_models
from burnish.papers import Paper

GENARM = Paper(
    "genarm", "2410.08193", "GenARM: Reward Guided Generation with Autoregressive Reward Model for Test-time Alignment"
)

Weight = Annotated[float, Option("How strongly the guides count; at 0 the model is as it is.", at_least=0)]
Guides = Annotated[
    str, Option("Models that guide, by name or directory, with the tokenizer of the run's model: a, or a*0.7,b*0.3.")
]


@register(
    GENARM,
    family="decoding",
    summary="A model guided by language models that were trained as token-level reward models (`genarm_rm`).",
    when="Preferences are to steer a model that you do not train, or several of them with weights chosen at use.",
    trial={"reward_lm": "tiny", "n": 2},
)
def genarm(
    task: draw.Source,
    *,
    reward_lm: Guides,
    alpha: Weight = 1.0,
    n: opt.Replies = 1,
) -> Method:
    """GenARM: decoding guided by autoregressive reward models.

    log p(a) = log pi(a) + alpha sum_i w_i log pi_r,i(a) + const, token by token;  alpha = 1 / beta of the paper

    alpha = 0 is the model itself. Nothing is trained; `genarm_rm` trains the reward models. The released code divides
    the sum by its total weight, so that its temperature is T / (1 + alpha); here it is the formula's own.
    """
    guides = weighted_models(reward_lm, "reward_lm")
    blend = rollout.guided({name: alpha * share for name, (_, share) in guides.items()})
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, blend=blend),
        score=score.scoring(task, None),
        select=select.keep_best(n),  # all of them
        learn=learn.Learn(),
        models=roles(**{name: frozen(model) for name, (model, _) in guides.items()}),
    )


@register(
    GENARM,
    family="decoding",
    summary="Train a language model as a token-level reward model of pairs, to guide another one (`genarm`).",
    when="Preference pairs are at hand for a model that is to be guided, not trained.",
)
def genarm_rm(
    task: draw.Source, *, beta: Annotated[float, Option("Scale of the reward beta_r.", above=0)] = 0.1
) -> Method:
    """The autoregressive reward model of GenARM: its reward of a reply is its log-prob.

    L = mean over pairs of -log s( beta [ sum_t log pi_r(y_w,t) - sum_t log pi_r(y_l,t) ] ), no reference

    It is `cpo` without its SFT loss. beta = 0.1 is the authors' Tulu recipe.
    """
    return from_pairs(task, pairs.uniform_reference(beta, on="demo"))
