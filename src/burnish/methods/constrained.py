"""Methods that bound how far an update goes, or which tokens may be said at all."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, method, roles, snapshot, soup
from burnish.methods import opt, papers, register
from burnish.methods.actor_critic import ppo_credit, ppo_models


@register(
    papers.TRPO,
    family="policy",
    summary="A natural-gradient step with a hard limit on the KL, found by conjugate gradient and line search.",
    when="You need each step's change of the policy bounded for certain, and can pay for conjugate gradients.",
    trial={"n": 4, "iterations": 2},
)
def trpo(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    delta: Annotated[float, Option("The largest KL of a step.", above=0)] = 0.01,
    damping: Annotated[float, Option("Added to the Fisher matrix's diagonal.", at_least=0)] = 0.1,
    iterations: Annotated[int, Option("Iterations of conjugate gradient.", at_least=1)] = 10,
    backtrack: Annotated[float, Option("Factor that shortens a step that goes too far.", above=0, below=1)] = 0.8,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Trust region policy optimisation, with group advantages in place of a critic.

    maximise mean over tokens of rho A  subject to  mean KL(pi_old || pi) <= delta
    rho = pi/pi_old,  A = (r - mean) / std
    x = (F + damping I)^-1 g by conjugate gradient;  step sqrt(2 delta / x^T F x) x, shortened until the bound holds

    The KL is the k2 estimate at sampled tokens, whose curvature at pi_old is the Fisher matrix. The learning rate
    plays no part. Departures: the paper's returns come from a value function or from whole episodes; here they are
    group advantages.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, reward_model),
        credit=chain(credit.group_relative(), credit.behaviour()),
        learn=learn.Learn(
            learn.pg_clip(float("inf")),
            learn.kl_k2(coef=1.0, anchor="old", name="trust"),
            move=learn.trust_region("trust", delta=delta, damping=damping, iterations=iterations, backtrack=backtrack),
        ),
        models=roles(**score.rm_role(reward_model)),
    )


@register(
    papers.NLPO,
    family="policy",
    summary="PPO that samples only tokens which a slowly renewed copy of the policy finds likely.",
    when="Free sampling wanders into tokens that never pay; the vocabulary can be cut to the likely ones.",
    trial={"n": 2, "updates": 1, "mask_every": 1},
)
def nlpo(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    mask_top_p: Annotated[float, Option("Probability that the allowed tokens hold.", above=0, at_most=1)] = 0.9,
    mask_every: Annotated[int, Option("Steps between two copies of the masking policy.", at_least=1)] = 20,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Natural language policy optimisation: PPO whose actions are masked.

    pi_psi: a copy of the policy, renewed every mask_every steps
    V(s) = the smallest set of tokens with sum over V of pi_psi(v|s) >= mask_top_p;   y_t ~ pi(.|s) restricted to V(s)
    and then PPO as in `ppo`, with all log-probs of the policy those of the restricted distribution

    The policy answers as it was trained only where the mask stays: sampled freely, it may say what was never
    allowed. mask_top_p = 1 is PPO.
    """
    mask = rollout.masked_by("mask", mask_top_p)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, blend=mask),
        score=score.scoring(task, reward_model),
        credit=chain(credit.token_ids(), ppo_credit(kl, lam, gamma=gamma)),
        learn=learn.Learn(
            learn.pg_clip_blended(eps, mask), learn.value_clip(value_eps, coef=value_coef), updates=updates
        ),
        models=ppo_models(critic_lr, reward_model, mask=snapshot("policy", every=mask_every)),
    )


@register(
    papers.SALSA,
    family="policy",
    summary="PPO held near the average of two fine-tuned models instead of near its own start.",
    when="You have two fine-tuned models and fear that a single reference is too narrow to explore around.",
    trial={"n": 2, "updates": 1, "other": "tiny"},
)
def salsa(
    task: draw.Source,
    *,
    other: Annotated[str, Option("The second model's name or directory.")],
    share: Annotated[float, Option("The second model's share in the soup.", at_least=0, at_most=1)] = 0.5,
    n: opt.Replies = 1,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """SALSA: PPO whose reference is a soup.

    theta_ref = (1 - share) theta_start + share theta_other, two models fine-tuned apart from one base; else `ppo`:
    r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token

    share = 0 is PPO. The PPO constants are `ppo`'s, the paper does not print all of its own. The paper finds a
    share of 0.5 best.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, reward_model),
        credit=ppo_credit(kl, lam, gamma=gamma),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
        models=ppo_models(critic_lr, reward_model, ref=soup("base", other, share)),
    )
