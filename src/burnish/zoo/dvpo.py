"""Lean and Mean: Decoupled Value Policy Optimization with Global Value Guidance (arXiv 2502.16944)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.schedules import after, before
from burnish.credit.returns import gae_stream
from burnish.method import Clock, Method, Option, Phase, chain, frozen, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

DVPO = Paper("dvpo", "2502.16944", "Lean and Mean: Decoupled Value Policy Optimization with Global Value Guidance")


@supplies("stream:adv")
def lambda_advantages(*, gamma: float = 1.0, lam: float = 0.95, author: str = "policy") -> Part:
    """A_t by GAE(gamma, lam), from streams "reward" and "value": advantages where no value model is trained."""

    return gae_stream("lambda_advantages", "adv", gamma, lam, author)


def _value_phase(task: draw.Source, lam: float, times: int | Callable[[Clock], float] = 1) -> Phase:
    """Preference pairs, 1 or -1 as the reward, and a value model that learns the return to go of every token."""
    return Phase(
        name="value",
        times=times,
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="value"),
        score=score.given_order("chosen", "rejected", lowest=-1.0, gap=2.0),
        credit=chain(
            credit.streams("value", "demo", value="value"),
            credit.token_rewards(kl=None, author="demo"),
            credit.lambda_returns(lam=lam, author="demo"),
            credit.shared("reward", "outcome"),
            credit.claim("end", "demo", positions="end"),
        ),
        learn=learn.Learn(
            learn.value_fit("returns", trainee="value", on="demo"),
            learn.value_fit("outcome", output="score", trainee="value", on=learn.CLAIMED, name="end"),
        ),
    )


@register(
    DVPO,
    family="reward",
    summary="A global value model: the return to go of every token, from preference pairs.",
    when="You will train several policies on one kind of preference and want one value model for all of them.",
)
def global_value_model(
    task: draw.Source,
    *,
    lam: Annotated[
        float, Option("GAE's lambda in the targets; 1 gives Monte-Carlo returns.", at_least=0, at_most=1)
    ] = 0.95,
) -> Method:
    """DVPO's global value model V, trained once, before any policy.

    r = 1 at the last token of a preferred reply, -1 at the last of the other;   R_t = A_t + V_t by GAE(1, lam)
    L = mean over tokens of (V(s_t) - R_t)^2 / 2 + mean over replies of (V(finished reply) - r)^2 / 2

    The product is saved as a transformers sequence-classification model with one label; pass its directory as
    --value-model to dvpo. The rewards are the released code's. Departure: V of the finished reply is trained too,
    because dvpo reads it in place of a reward.
    """
    return Method(models=roles("value", value=trained(outputs=1)), phases=(_value_phase(task, lam),), product="value")


@register(
    DVPO,
    family="policy",
    summary="PPO with a frozen global value model in place of critic and reward model.",
    when="You have preference pairs and no memory for a critic that learns beside the policy.",
    example="burnish train dvpo --value-model runs/DIR/model",
    trial={"n": 4, "value_steps": 1, "updates": 1},
)
def dvpo(
    task: draw.Source,
    *,
    value_model: Annotated[
        str | None, Option("The directory of a value model that `burnish train global_value_model` saved.")
    ] = None,
    value_steps: Annotated[int, Option("Steps that train the value model, if none is given.", at_least=1)] = 100,
    n: opt.Replies = 1,
    eps: opt.ClipRange = 0.2,
    kl: opt.KLPenalty = 0.2,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
) -> Method:
    """Decoupled value policy optimisation: nothing scores the replies but the frozen value model V.

    r_t = -kl log(pi_old/ref)(y_t), plus V(finished reply) at the last token
    A_t by GAE(1, lam) with V(s_t), whitened over the batch
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    Without a directory the value model is trained first, in the run's own first steps, as `global_value_model`
    does; the policy begins in the step that ends this, and the value model is frozen from then on. Departures: the
    released code puts 0 after the last token, so that a reply loses the value of its own end, and whitens the
    values; here the value of the finished reply stands there, and the values are as they are. So kl is weighed
    against values of the scale of their rewards, 1 and -1: values a V + b need a kl. Only for kl = 0 does the
    whitening take that scale out. The KL coefficient is fixed. kl = 0.2 is the first of the released code, which
    adapts it.
    """
    main = Phase(
        times=1 if value_model else after(value_steps - 1),
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.reward_model("value"),
        credit=chain(
            credit.behaviour(),
            credit.ref(),
            credit.streams("value", "policy", value="value"),
            credit.token_rewards(kl=kl),
            lambda_advantages(lam=lam),
            credit.whiten(),
        ),
        learn=learn.Learn(learn.pg_clip(eps), updates=updates),
    )
    first = () if value_model else (_value_phase(task, lam, before(value_steps)),)
    value = frozen(value_model, outputs=1) if value_model else trained(outputs=1)
    return Method(models=roles(ref=frozen("policy"), value=value), phases=(*first, main))
