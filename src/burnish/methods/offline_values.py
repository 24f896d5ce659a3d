"""Methods whose values are learned from fixed data, and those that only use such values."""

from __future__ import annotations

from collections.abc import Callable

from burnish.cast.roles import frozen, stage, trained
from burnish.credit.actions import actions
from burnish.credit.gae import token_rewards, whiten
from burnish.credit.members import member
from burnish.credit.returns import lambda_advantages, lambda_returns, monte_carlo
from burnish.credit.sequence import shared
from burnish.credit.streams import behaviour, ref, streams
from burnish.draw.tasks import pairs, prompts
from burnish.learn.learn import Learn
from burnish.learn.terms import pg_clip
from burnish.learn.terms.fit import value_fit
from burnish.learn.terms.soft_bellman import kl_exact, path_policy, path_value
from burnish.method import Method, Phase, method
from burnish.methods.table import register
from burnish.nouns import Clock
from burnish.parts import chain
from burnish.rollout.given import given
from burnish.rollout.sample import sample
from burnish.schedules import after, before
from burnish.score.given import given_order
from burnish.score.model import reward_model as scored_by
from burnish.score.verify import verify
from burnish.tasks.source import Source

_DVPO = "Lean and Mean: Decoupled Value Policy Optimization with Global Value Guidance"


def _value_phase(task: Source, lam: float, times: int | Callable[[Clock], float] = 1) -> Phase:
    """Preference pairs, their order as the reward, and a value model that learns the return to go of every token."""
    return Phase(
        name="value",
        times=times,
        draw=pairs(task),
        rollout=given("chosen", "rejected", reader="value"),
        score=given_order("chosen", "rejected"),
        credit=chain(
            streams("value", "demo", value="value"), token_rewards(kl=None, author="demo"), lambda_returns(lam=lam, author="demo"),
            shared("reward", "outcome"), member("value", "demo"), member("end", "demo", at="end"),
        ),
        learn=Learn(
            value_fit("returns", trainee="value"), value_fit("outcome", output="score", trainee="value", name="end")
        ),
    )  # fmt: skip


@register(
    family="reward",
    catalogue=("dvpo",),
    title=_DVPO,
    arxiv="2502.16944",
    summary="A global value model: the return to go of every token, from preference pairs.",
    when="You will train several policies on one kind of preference and want one value model for all of them.",
    example="burnish train global_value_model",
)
def global_value_model(task: Source, *, lam: float = 0.95) -> Method:
    """DVPO's global value model V, trained once, before any policy.

    r = 1 at the last token of a preferred reply, 0 at the last of the other;   R_t = A_t + V_t by GAE(1, lam)
    L = mean over tokens of (V(s_t) - R_t)^2 / 2 + mean over replies of (V(finished reply) - r)^2 / 2

    The product is saved as a transformers sequence-classification model with one label; pass its directory as --value-model to
    dvpo. The rewards of the released code are 1 and -1: the same up to scale, which dvpo's whitening takes out.
    lam: GAE's lambda in the targets; 1 gives Monte-Carlo returns.
    Departure: V of the finished reply is trained too, because dvpo reads it in place of a reward.
    """
    return Method(cast=stage("value", value=trained(outputs=1)), phases=(_value_phase(task, lam),), product="value")


@register(
    family="policy",
    catalogue=("dvpo",),
    title=_DVPO,
    arxiv="2502.16944",
    summary="PPO with a frozen global value model in place of critic and reward model.",
    when="You have preference pairs and no memory for a critic that learns beside the policy.",
    example="burnish train dvpo --value-model runs/DIR/model",
    trial={"n": 4, "value_steps": 1, "epochs": 1},
)
def dvpo(
    task: Source, *, value_model: str | None = None, value_steps: int = 100, n: int = 1, eps: float = 0.2, kl: float = 0.2,
    lam: float = 0.95, epochs: int = 4, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Decoupled value policy optimisation: nothing scores the replies but the frozen value model V.

    r_t = -kl log(pi_old/ref)(y_t), plus V(finished reply) at the last token
    A_t by GAE(1, lam) with V(s_t), whitened over the batch;   L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    Without a directory the value model is trained first, in the run's own first steps, as `global_value_model` does; the
    policy begins in the step that ends this, and the value model is frozen from then on.
    value_model: the directory of a value model that `burnish train global_value_model` saved.
    value_steps: steps that train the value model where no directory is given, at least 1. n: replies sampled for each prompt.
    eps: the clip range. kl: KL penalty per token; 0.2 is the first of the released code, which adapts it. lam: GAE's lambda.
    epochs: passes over each batch.
    Departures: the released code puts 0 after the last token, so that a reply loses the value of its own end, and whitens the
    values; here the value of the finished reply stands there, and the values are as they are. The KL coefficient is fixed.
    """
    if value_model is None and value_steps < 1:
        raise ValueError(
            f"value_steps is {value_steps}; train the value model for at least 1 step, or pass value_model"
        )
    main = Phase(
        times=1 if value_model else after(value_steps - 1),
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scored_by("value"),
        credit=chain(
            behaviour(), ref(temperature=temperature), streams("value", "policy", value="value"),
            token_rewards(kl=kl), lambda_advantages(lam=lam), whiten(), member("pg", "policy"),
        ),
        learn=Learn(pg_clip(eps), epochs=epochs, temperature=temperature),
    )  # fmt: skip
    first = () if value_model else (_value_phase(task, lam, before(value_steps)),)
    value = frozen(value_model, outputs=1) if value_model else trained(outputs=1)
    return Method(cast=stage(ref=frozen("policy"), value=value), phases=(*first, main))


_HOLD = {"token": 0.01, "step": 0.1, "response": 0.3}  # OREO's weights of the KL


@register(
    family="policy",
    catalogue=("oreo",),
    title="Offline Reinforcement Learning for LLM Multi-Step Reasoning",
    arxiv="2412.16145",
    summary="Policy and value fitted to the soft Bellman equation on replies of the starting policy.",
    when="You have replies with right and wrong ends, offline, and want credit for single steps; the value model guides search too.",
    trial={"n": 4},
)
def oreo(
    task: Source,
    *,
    n: int = 8,
    level: str = "token",
    beta: float = 0.03,
    alpha: float | None = None,
    critic_lr: float = 1.0,
    temperature: float = 1.0,
) -> Method:
    """OREO: offline, on replies of the frozen starting policy, right and wrong. Actions t are tokens, steps or the reply.

    lr_t = log pi(y_t)/ref(y_t), summed over the action's tokens,  R the reply's score,  V_t before the action
    L_V  = mean over replies of mean over actions of (V_t - R + beta sum_{i>=t} lr_i)^2                      (lr held)
    L_pi = the same mean of (V_t - R + beta lr_t + sg[beta sum_{i>t} lr_i])^2 + alpha KL(pi || ref)(s_t)     (V held)

    The KL is over the whole vocabulary, at every token. V and lr are those of the moment, in every update.
    n: replies sampled for each prompt. level: token, step (a line) or response. beta: strength of the entropy-regularised
    objective. alpha: weight of the KL; the paper's are 0.01 for tokens, 0.1 for steps and 0.3 for responses. critic_lr: multiplies the learning rate for the value model.
    Departure: replies are drawn afresh from the starting policy as they are needed, where the paper collects them beforehand.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature, who="ref"),
        score=verify(task, author="ref"),
        credit=chain(
            ref(temperature=temperature), token_rewards(kl=None, author="ref"), monte_carlo(author="ref"), actions(level, author="ref"),
            member("path", "ref"), member("value", "ref"), member("kl", "ref"),
        ),
        learn=Learn(path_policy(beta), path_value(beta), kl_exact(coef=_HOLD[level] if alpha is None else alpha), temperature=temperature),
        cast=stage(ref=frozen("policy"), critic=trained(outputs=1, lr=critic_lr)),
    )  # fmt: skip
