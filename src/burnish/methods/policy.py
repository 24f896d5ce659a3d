"""Policy gradients on scored samples."""

from __future__ import annotations

import math
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.credit.returns import n_step
from burnish.method import Method, Option, chain, frozen, method, roles, trained
from burnish.methods import opt, papers, register
from burnish.methods.actor_critic import ppo_credit, ppo_models


@register(
    papers.GRPO,
    family="policy",
    summary="Each reply's advantage is its score relative to its group's; no critic.",
    when="Verifiable rewards and several replies a prompt: the first thing to try.",
)
def grpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    updates: opt.Updates = 1,
    minibatches: opt.Minibatches = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Group relative policy optimisation.

    A_i = (r_i - mean r) / std r over the n replies to one prompt, for all tokens of reply i
    L = mean over replies of mean over tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A) + beta k3 ]
    rho = pi/pi_old at the token;  k3 = ref/pi - log(ref/pi) - 1

    pi_old is the policy that sampled: its log-probs are those recorded at sampling. std is the sample standard
    deviation (+1e-6). The paper samples 64 replies, does one update a batch and does not print eps. eps = 0.2 is
    PPO's, beta = 0.04 the paper's.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=chain(credit.group_relative(), credit.behaviour(), credit.ref()),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean),
            learn.kl_k3(coef=beta, norm=learn.seq_mean),
            updates=updates,
            minibatches=minibatches,
        ),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )


@register(
    papers.PPO,
    family="policy",
    summary="Clipped surrogate with a critic and generalised advantage estimation.",
    when="You can afford a critic and want token-level credit, or have only one reply a prompt.",
    trial={"n": 2, "updates": 1},
)
def ppo(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    minibatches: opt.Minibatches = 1,
    critic_lr: opt.CriticLR = 1.0,
    critic: Annotated[
        str | None, Option("A model with a head of one output, from which the critic starts; a process reward model.")
    ] = None,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Proximal policy optimisation as it is used on language models (arXiv 1707.06347, with the rewards of 2203.02155).

    r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token;  A_t, R_t by GAE(gamma, lam), A whitened
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2
    V_clip = V_old + clip(V - V_old, +-value_eps)

    The critic is a copy of the model with a linear head, trained apart from the policy, as in RLHF practice; the
    first paper shares weights and adds an entropy bonus. The KL coefficient is fixed, not adaptive. A critic that
    starts from a process reward model is the value initialisation of arXiv 2410.17621.
    """
    started = {"critic": trained(critic, outputs=1, lr=critic_lr)} if critic else {}
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=ppo_credit(kl, lam, gamma=gamma),
        learn=learn.Learn(
            learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates, minibatches=minibatches
        ),
        models=ppo_models(critic_lr, reward_model, **started),
    )


@register(
    papers.A2C,
    family="policy",
    summary="Policy gradient with a learned baseline and n-step returns, no ratio and no clip.",
    when="You want the classic actor-critic as a baseline, strictly on-policy.",
)
def a2c(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    lookahead: Annotated[int, Option("Tokens after which a return goes on with the value model.", at_least=1)] = 5,
    gamma: opt.Gamma = 0.99,
    entropy: opt.EntropyCoef = 0.01,
    value_coef: opt.ValueCoef = 1.0,
    critic_lr: opt.CriticLR = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Advantage actor-critic: A3C in its synchronous form, one update a batch.

    R_t = r_t + gamma r_{t+1} + ... to the end of a stretch of `lookahead` tokens, + gamma^k V there (0 after the end)
    A_t = R_t - V_t,   r = the score at the last token, 0 elsewhere
    L = mean over tokens of -A_t log pi(y_t) - entropy H_t + value_coef (V - R)^2 / 2

    The constants are the paper's for Atari. With a lookahead longer than the reply, A is the Monte-Carlo return
    minus V. Departures: the critic is a model of its own, where the paper shares weights; means over tokens, where
    it sums. lookahead is the paper's t_max.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=chain(
            credit.streams("critic", "policy", value="value"),
            credit.token_rewards(kl=None),
            n_step(lookahead, gamma=gamma),
        ),
        learn=learn.Learn(
            learn.pg_reinforce(norm=learn.token_mean),
            learn.entropy_bonus(coef=entropy, name="bonus"),
            learn.value_clip(math.inf, coef=value_coef),
        ),
        models=roles(critic=trained(outputs=1, lr=critic_lr), **score.rm_role(reward_model)),
    )
