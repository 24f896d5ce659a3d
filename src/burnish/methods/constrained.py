"""Methods that bound how far an update goes, or which tokens may be said at all."""

from __future__ import annotations

from burnish.cast.blend import masked_by
from burnish.cast.roles import snapshot, soup, stage
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.credit.streams import behaviour, token_ids
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.terms import pg_clip, value_clip
from burnish.learn.terms.policy import kl_k2, pg_clip_blended
from burnish.learn.trust_region import trust_region
from burnish.method import Method, method
from burnish.methods.actor_critic import ppo_cast, ppo_credit
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.sample import sample
from burnish.score.model import rm_role, scoring
from burnish.tasks.source import Source


@register(
    family="policy",
    catalogue=("trpo",),
    title="Trust Region Policy Optimization",
    arxiv="1502.05477",
    summary="A natural-gradient step with a hard limit on the KL, found by conjugate gradient and line search.",
    when="You need each step's change of the policy bounded for certain, and can pay for conjugate gradients.",
    trial={"n": 4, "iterations": 2},
)
def trpo(
    task: Source, *, n: int = 8, delta: float = 0.01, damping: float = 0.1, iterations: int = 10, backtrack: float = 0.8, temperature: float = 1.0,
    reward_model: str | None = None,
) -> Method:  # fmt: skip
    """Trust region policy optimisation, with group advantages in place of a critic.

    maximise mean over tokens of rho A  subject to  mean KL(pi_old || pi) <= delta,   rho = pi/pi_old, A = (r - mean) / std
    x = (F + damping I)^-1 g by conjugate gradient;  step sqrt(2 delta / x^T F x) x, shortened until the constraint holds

    The KL is the k2 estimate at sampled tokens, whose curvature at pi_old is the Fisher matrix. The learning rate plays no
    part. Departures: the paper's returns come from a value function or from whole episodes; here they are group advantages.
    n: replies sampled for each prompt. delta: the largest KL of a step. damping: added to the Fisher matrix's diagonal.
    iterations: of conjugate gradient. backtrack: how much a step that goes too far is shortened.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        credit=chain(group_relative(), behaviour(), member("pg", "policy"), member("trust", "policy")),
        learn=Learn(
            pg_clip(float("inf")), kl_k2(coef=1.0, anchor="old", name="trust"), temperature=temperature,
            move=trust_region("trust", delta=delta, damping=damping, iterations=iterations, backtrack=backtrack),
        ),
        cast=stage(**rm_role(reward_model)),
    )  # fmt: skip


@register(
    family="policy",
    catalogue=("nlpo",),
    title="Is Reinforcement Learning (Not) for Natural Language Processing: Benchmarks, Baselines, and Building Blocks",
    arxiv="2210.01241",
    summary="PPO that samples only tokens which a slowly renewed copy of the policy finds likely.",
    when="Free sampling wanders into tokens that never pay; the vocabulary can be cut to the likely ones.",
    trial={"n": 2, "epochs": 1, "mask_every": 1},
)
def nlpo(
    task: Source, *, n: int = 1, mask_top_p: float = 0.9, mask_every: int = 20, eps: float = 0.2, value_eps: float = 0.2, value_coef: float = 0.5,
    kl: float = 0.05, gamma: float = 1.0, lam: float = 0.95, epochs: int = 4, critic_lr: float = 1.0, reward_model: str | None = None,
) -> Method:  # fmt: skip
    """Natural language policy optimisation: PPO whose actions are masked.

    pi_psi: a copy of the policy, renewed every mask_every steps
    V(s) = the smallest set of tokens with sum over V of pi_psi(v|s) >= mask_top_p;   y_t ~ pi(.|s) restricted to V(s)
    and then PPO as in `ppo`, with all log-probs of the policy those of the restricted distribution

    The policy answers as it was trained only where the mask stays: sampled freely, it may say what was never allowed.
    mask_top_p = 1 is PPO.
    n: replies sampled for each prompt. mask_top_p: probability that the allowed tokens hold. mask_every: steps between two
    copies. eps: the policy's clip range. value_eps: the critic's clip range. value_coef: weight of the critic's loss.
    kl: KL penalty per token, inside the reward. gamma: discount per token. lam: GAE's lambda. epochs: passes over each batch.
    critic_lr: multiplies the learning rate for the critic.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    mask = masked_by("mask", mask_top_p)
    return method(
        draw=prompts(task),
        rollout=sample(n, blend=mask),
        score=scoring(task, reward_model),
        credit=chain(token_ids(), ppo_credit(kl, lam, gamma=gamma)),
        learn=Learn(pg_clip_blended(eps, mask), value_clip(value_eps, coef=value_coef), epochs=epochs),
        cast=ppo_cast(critic_lr, reward_model, mask=snapshot("policy", every=mask_every)),
    )  # fmt: skip


@register(
    family="policy",
    catalogue=("salsa",),
    title="SALSA: Soup-based Alignment Learning for Stronger Adaptation in RLHF",
    arxiv="2411.01798",
    summary="PPO held near the average of two fine-tuned models instead of near its own start.",
    when="You have two fine-tuned models and fear that a single reference is too narrow to explore around.",
    example="burnish train salsa --other runs/DIR/model",
    trial={"n": 2, "epochs": 1, "other": "tiny"},
)
def salsa(
    task: Source, *, other: str, share: float = 0.5, n: int = 1, eps: float = 0.2, value_eps: float = 0.2, value_coef: float = 0.5, kl: float = 0.05,
    gamma: float = 1.0, lam: float = 0.95, epochs: int = 4, critic_lr: float = 1.0, temperature: float = 1.0, reward_model: str | None = None,
) -> Method:  # fmt: skip
    """SALSA: PPO whose reference is a soup.

    theta_ref = (1 - share) theta_start + share theta_other, two models fine-tuned apart from one base;   the rest is `ppo`:
    r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token

    share = 0 is PPO. The PPO constants are `ppo`'s, the paper does not print all of its own.
    other: the second model's name or directory. share: its share in the soup; the paper finds 0.5 best.
    n: replies sampled for each prompt. eps: the policy's clip range. value_eps: the critic's clip range.
    value_coef: weight of the critic's loss. kl: KL penalty per token, inside the reward. gamma: discount per token.
    lam: GAE's lambda. epochs: passes over each batch. critic_lr: multiplies the learning rate for the critic.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        credit=ppo_credit(kl, lam, gamma=gamma, temperature=temperature),
        learn=Learn(pg_clip(eps), value_clip(value_eps, coef=value_coef), epochs=epochs, temperature=temperature),
        cast=ppo_cast(critic_lr, reward_model, ref=soup("base", other, share)),
    )  # fmt: skip
