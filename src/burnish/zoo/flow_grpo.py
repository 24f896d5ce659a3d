"""Flow-GRPO: Training Flow Matching Models via Online RL (arXiv 2505.05470)."""

from __future__ import annotations

from dataclasses import replace

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, chain, frozen, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

FLOW_GRPO = Paper("flow-grpo", "2505.05470", "Flow-GRPO: Training Flow Matching Models via Online RL")


@register(
    FLOW_GRPO,
    family="policy",
    summary="GRPO of a flow model whose ODE is sampled as an SDE with the same marginals.",
    when="The policy draws (docs/denoisers.md): the first thing to try.",
    example="burnish train flow_grpo --model tiny-flow --task paint:2",
    trial={"n": 3},
)
def flow_grpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 1e-4,
    beta: opt.KLCoef = 0.04,
    updates: opt.Updates = 1,
) -> Method:
    """A_i = (r_i - mean r) / std r;   L = mean over steps of [ -min(rho A, clip(rho) A) + beta KL(p || p_ref) ]
    x_s = x + (v + w^2 / (2 t) eps) (s - t) + w sqrt(t - s) z,   w = 0.7 sqrt(t / (1 - t)),   z ~ N(0, 1)
    KL = |mu - mu_ref|^2 / (2 w^2 (t - s)), the mean over pixels

    The released code divides by w^2 alone (C); here it is the KL of the two Gaussians, so that with K steps a weight
    of beta here is one of beta K there. eps belongs to a log-density that is the mean over pixels. Without noise the
    SDE is the ODE (`--denoise-noise 0` samples it, and has no ratio). On a model of words the KL is its second order.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps), learn.kl_steps(coef=beta), updates=updates),
        models=roles(policy=replace(trained(), sampler="flow_sde"), ref=replace(frozen("policy"), sampler="flow_sde")),
    )
