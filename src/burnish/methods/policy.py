"""Policy gradients on scored samples."""

from __future__ import annotations

from burnish.cast.roles import frozen, stage
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.credit.streams import behaviour, ref
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_mean
from burnish.learn.terms import kl_k3, pg_clip, value_clip
from burnish.method import Method, method
from burnish.methods.actor_critic import ppo_cast, ppo_credit
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.sample import sample
from burnish.score.model import rm_role, scoring
from burnish.tasks.source import Source


@register(
    family="policy",
    catalogue=("grpo",),
    title="DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
    arxiv="2402.03300",
    summary="Each reply's advantage is its score relative to its group's; no critic.",
    when="Verifiable rewards and several replies a prompt: the first thing to try.",
    trial={"n": 4},
)
def grpo(
    task: Source,
    *,
    n: int = 8,
    eps: float = 0.2,
    beta: float = 0.04,
    temperature: float = 1.0,
    updates: int = 1,
    reward_model: str | None = None,
) -> Method:
    """Group relative policy optimisation.

    A_i = (r_i - mean r) / std r over the n replies to one prompt, for all tokens of reply i
    L = mean over replies of mean over tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A) + beta k3 ]
    rho = pi/pi_old at the token;  k3 = ref/pi - log(ref/pi) - 1

    pi_old is the policy that sampled: its log-probs are those recorded at sampling. std is the sample standard deviation
    (+1e-6). The paper samples 64 replies, does one update a batch and does not print eps.
    n: replies sampled for each prompt. eps: how far the ratio may move before it is clipped; 0.2 is PPO's.
    beta: coefficient of the KL to the starting policy; 0.04 is the paper's. updates: passes over each batch.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        credit=chain(
            group_relative(), behaviour(), ref(temperature=temperature), member("pg", "policy"), member("kl", "policy")
        ),
        learn=Learn(
            pg_clip(eps, norm=seq_mean), kl_k3(coef=beta, norm=seq_mean), epochs=updates, temperature=temperature
        ),
        cast=stage(ref=frozen("policy"), **rm_role(reward_model)),
    )


@register(
    family="policy",
    catalogue=("ppo",),
    title="Proximal Policy Optimization Algorithms",
    arxiv="1707.06347",
    summary="Clipped surrogate with a critic and generalised advantage estimation.",
    when="You can afford a critic and want token-level credit, or have only one reply a prompt.",
    trial={"n": 2, "epochs": 1},
)
def ppo(
    task: Source, *, n: int = 1, eps: float = 0.2, value_eps: float = 0.2, value_coef: float = 0.5, kl: float = 0.05, gamma: float = 1.0, lam: float = 0.95,
    epochs: int = 4, minibatches: int = 1, critic_lr: float = 1.0, temperature: float = 1.0, reward_model: str | None = None,
) -> Method:  # fmt: skip
    """Proximal policy optimisation as it is used on language models (arXiv 1707.06347, with the rewards of 2203.02155).

    r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token;  A_t, R_t by GAE(gamma, lam), A whitened over the batch
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2,   V_clip = V_old + clip(V - V_old, +-value_eps)

    The critic is a copy of the model with a linear head, trained apart from the policy, as in RLHF practice; the first paper
    shares weights and adds an entropy bonus. The KL coefficient is fixed, not adaptive.
    n: replies sampled for each prompt. eps: the policy's clip range. value_eps: the critic's clip range.
    value_coef: weight of the critic's loss. kl: KL penalty per token, inside the reward. gamma: discount per token.
    lam: GAE's lambda, 1 for Monte-Carlo returns. epochs: passes over each batch. minibatches: updates in each pass.
    critic_lr: multiplies the learning rate for the critic.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        credit=ppo_credit(kl, lam, gamma=gamma, temperature=temperature),
        learn=Learn(pg_clip(eps), value_clip(value_eps, coef=value_coef), epochs=epochs, minibatches=minibatches, temperature=temperature),
        cast=ppo_cast(critic_lr, reward_model),
    )  # fmt: skip
