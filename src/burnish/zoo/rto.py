"""DPO Meets PPO: Reinforced Token Optimization for RLHF (arXiv 2404.18922)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, everything, per_trace, supplies
from burnish.core.schedules import is_zero
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.method import Method, Option, chain, frozen, method
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.papers import Paper

RTO = Paper("rto", "2404.18922", "DPO Meets PPO: Reinforced Token Optimization for RLHF")

METRICS = (("dense_bonus", "Credit", "mean over reply tokens of the bonus that a log-ratio gives"),)


@supplies("stream:reward")
def dense_bonus(weight: float, limit: float, *, stream: str, author: str = "policy") -> Part:
    """r_t + clip(weight (log p - log ref), -limit, limit) at the author's tokens: log p is the named stream.

    RTO's token reward (arXiv 2404.18922), with p a policy that was trained by DPO: its log-ratio to the reference is,
    up to a scale, the reward that the preferences imply.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = trace.by(author)
        bonus = (weight * (trace.streams[stream] - trace.streams["ref"])[mask]).clamp(-limit, limit)
        trace.streams["reward"][mask] += bonus
        step.notes.add("dense_bonus", float(bonus.sum()), int(mask.sum()))

    found = per_trace(
        write,
        name=f"dense_bonus({stream})",
        reads=frozenset({"stream:reward", f"stream:{stream}", "stream:ref", f"tokens:{author}"}),
        writes=frozenset(),
    )
    idle = everything if is_zero(weight) else None
    return Part(name=found.name, call=found.call, reads=found.reads, updates=frozenset({"stream:reward"}), idle=idle)


@register(
    RTO,
    family="policy",
    summary="PPO with a reward for every token, read off a policy that DPO trained.",
    when="You have preference pairs and want a reward for every token from them.",
    trial={"n": 4, "minibatches": 1, "dpo_policy": "tiny"},
)
def rto(
    task: draw.Source,
    *,
    dpo_policy: Annotated[str, Option("The directory of a model that DPO trained from this run's model.")],
    n: opt.Replies = 1,
    beta1: Annotated[float, Option("Weight of the token reward.", at_least=0)] = 0.05,
    dense_limit: Annotated[float, Option("The largest token reward.", at_least=0)] = 0.05,
    beta2: Annotated[float, Option("KL penalty per token.", at_least=0)] = 0.01,
    beta3: Annotated[float, Option("Weight of the score.", at_least=0)] = 1.0,
    limit: Annotated[float, Option("The largest normalised score.", above=0)] = 10.0,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    lam: opt.Lam = 0.95,
    critic_lr: opt.CriticLR = 18.0,
    updates: opt.Updates = 1,
    minibatches: opt.Minibatches = 8,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Reinforced token optimisation.

    r_t = clip(beta1 log(dpo/ref)(y_t), +-dense_limit) - beta2 log(pi_old/ref)(y_t), plus beta3 score~ at the last token
    score~ = clip((score - mean) / std, +-limit), mean and std of all scores so far
    A_t, R_t by GAE(1, lam), A whitened
    L = mean over replies of mean over tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + max((V - R)^2, (V_clip - R)^2) / 2 ]

    The constants and the means are the released code's, for updates of 128 replies. On `tiny`, with a few replies
    an update, they learn less than a mean over all tokens (CHANGELOG has the runs; the cause is not known). Departure:
    scores are normalised by running moments, where the code uses moments stored with its reward model.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.scoring(task, reward_model), score.normalised(score.Moments("scores"), limit, scale=beta3)),
        credit=chain(
            credit.streams("dpo", logp="dpo"),
            ppo_credit(beta2, lam, score="normal", dense=(dense_bonus(beta1, dense_limit, stream="dpo"),)),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean),
            learn.value_clip(value_eps, norm=learn.seq_mean),
            updates=updates,
            minibatches=minibatches,
        ),
        models=ppo_models(critic_lr, reward_model, dpo=frozen(dpo_policy)),
    )
