"""GRPO-Guard: Mitigating Implicit Over-Optimization in Flow Matching via Regulated Clipping (arXiv 2510.22319)."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.learn import maths
from burnish.learn.maths.policy import was_clipped
from burnish.method import Method, chain, frozen, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

GRPO_GUARD = Paper(
    "grpo-guard",
    "2510.22319",
    "GRPO-Guard: Mitigating Implicit Over-Optimization in Flow Matching via Regulated Clipping",
)


def normalised_log_ratio(logp: Tensor, old: Tensor, drift: Tensor, old_drift: Tensor, std: Tensor) -> Tensor:
    """[N]:  std (log rho + |mu - mu_old|^2 / (2 std^2)), squares as means over pixels.

    With x = mu_old + std z it is mean(z (mu - mu_old)): of mean 0 whatever the policy, and on the scale of mu.
    """
    return std * (logp - old + 0.5 * (drift - old_drift).square().sum(-1))


def pg_ratio_norm(eps: float) -> learn.Term:
    """PPO's clipped surrogate with the normalised ratio. Streams: old (log-probs) and old_drift of the old policy."""

    def loss(live: learn.Live) -> Tensor:
        ratio = normalised_log_ratio(live.logp, live.old, live.drift, live.old_drift, live.std)
        zero = ratio.new_zeros(ratio.shape)
        live.note("clipped", was_clipped(ratio, zero, live.adv, eps, eps))
        live.note("entropy", live.entropy)
        return maths.clipped_surrogate(ratio, zero, live.adv, eps, eps)

    return learn.Term(
        name="pg",
        unit="token",
        loss=loss,
        live=("logp", "entropy", "drift", "std"),
        streams=("adv", "old", "old_drift"),
        norm=learn.token_mean,
    )


@register(
    GRPO_GUARD,
    family="policy",
    summary="Flow-GRPO whose ratio is centred and scaled step by step, so that the clip works on both sides.",
    when="Flow-GRPO's reward rises while pictures get worse.",
    example="burnish train grpo_guard --model tiny-flow --task paint:2 --updates 2",
    trial={"n": 3},
)
def grpo_guard(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 1e-4,
    beta: opt.KLCoef = 0.04,
    updates: opt.Updates = 1,
) -> Method:
    """log rho' = std ( log rho + |mu - mu_old|^2 / (2 std^2) ) = mean(z (mu - mu_old)),  x = mu_old + std z
    L = mean over steps of [ -min(rho' A, clip(rho', 1 - eps, 1 + eps) A) + beta KL(p || p_ref) ]

    Flow-GRPO's log rho has the mean -|mu - mu_old|^2 / (2 std^2) < 0, so that few ratios reach 1 + eps, and a scale of
    1 / std that differs between steps. The added term keeps its gradient. The identity holds to rounding (a test). The
    formula is second-hand (S): three reimplementations agree; eps is ours (R). The paper also divides the loss of a
    step by its length in time; levels are evenly spaced here, so that this is a constant, and left out. Without
    centring and scale it is `flow_grpo`. On a model of words std is 1, and the added term is the second order of the
    KL to the old policy.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(
            credit.group_relative(), credit.behaviour(), credit.streams("policy", "policy", drift="old_drift")
        ),
        learn=learn.Learn(pg_ratio_norm(eps), learn.kl_steps(coef=beta), updates=updates),
        models=roles(policy=replace(trained(), sampler="flow_sde"), ref=replace(frozen("policy"), sampler="flow_sde")),
    )
