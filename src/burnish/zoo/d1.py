"""d1: Scaling Reasoning in Diffusion Large Language Models via Reinforcement Learning (arXiv 2504.12216)."""

from __future__ import annotations

from dataclasses import replace

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, chain, frozen, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

D1 = Paper(
    "d1-diffu-grpo",
    "2504.12216",
    "d1: Scaling Reasoning in Diffusion Large Language Models via Reinforcement Learning",
)


@register(
    D1,
    family="policy",
    summary="GRPO of a masked diffusion language model, on the log-probs of a reply that is wholly hidden.",
    when="The policy fills in hidden tokens (docs/masked.md) and one forward a reply must do.",
    trial={"n": 3},
)
def diffu_grpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    updates: opt.Updates = 1,
) -> Method:
    """A_i = (r_i - mean r) / std r;   rho_t = pi(y_t | q') / pi_old(y_t | q'), all tokens of the reply hidden in both
    L = mean over tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A) + beta k3 ]

    q' is the prompt with each token hidden with probability 0.15, the same in the policy, its older self and the
    reference (C). Old log-probs are computed again: what the sampler recorded belongs to other hidden tokens.
    Departures: the hidden tokens of a prompt change with the step, not with each update of a batch. The stage of
    imitation before it is `burnish train sft`. With a model that writes from left to right it is `grpo` whose old
    log-probs are computed again.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.old(), credit.ref()),
        learn=learn.Learn(learn.pg_clip(eps), learn.kl_k3(coef=beta), updates=updates),
        models=roles(policy=replace(trained(), view="all"), ref=replace(frozen("policy"), view="all")),
    )
