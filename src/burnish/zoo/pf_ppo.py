"""Policy Filtration in RLHF to Fine-Tune LLM for Code Generation (arXiv 2409.06957)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, method
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.papers import Paper

PF_PPO = Paper("pf-ppo", "2409.06957", "Policy Filtration in RLHF to Fine-Tune LLM for Code Generation")


@register(
    PF_PPO,
    family="policy",
    summary="PPO on the replies whose rank makes their reward trustworthy: the best, and a random one or the worst.",
    when="A reward model is noisy for middling replies, and more reliable for those that it finds best or worst.",
)
def pf_ppo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 5,
    strategy: Annotated[
        str,
        Option(
            "Replies of a prompt that stay: the best (bon), with a random one (br), with the worst (bw), all, or those "
            "of the strategy with the largest R^2 (r2, which needs a reward model and a verifier).",
            choices=("bon", "br", "bw", "all", "r2"),
        ),
    ] = "bw",
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    minibatches: opt.Minibatches = 1,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Policy filtration for PPO.

    The n replies to a prompt are ranked by reward; those at the strategy's ranks stay:  bon {1};  br {1, one of 2..n};
    bw {1, n}.  PPO on what stays: GAE, whitening over the kept tokens, the clipped surrogate and the critic's loss
    r2: the strategy with the largest R^2 = 1 - SSE / SST of the regression of the verifier's score on the reward, over
    the replies that each would keep (the newest 4,096)

    strategy = all is PPO, and so is bw with n = 2. Ranks are within a prompt, as in the paper; the released code takes
    the largest and smallest score of the whole batch, or samples by the square of the score. The paper chooses a
    strategy once, before training; r2 chooses anew in every step.
    """
    fitted = strategy == "r2"
    if fitted and not reward_model:
        raise ValueError("strategy r2 compares a reward model with the task's verifier; pass --reward-model DIR")
    scored = (
        chain(score.verify(task), score.reward_model(name="proxy")) if fitted else score.scoring(task, reward_model)
    )
    by = "proxy" if fitted else "reward"
    terms = learn.pg_clip(eps, on=learn.CLAIMED), learn.value_clip(value_eps, coef=value_coef)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=scored,
        select=select.filtered(select.Fits("fits") if fitted else strategy, score=by),
        credit=chain(
            ppo_credit(kl, lam, gamma=gamma, score=by),
            credit.claim("pg", "policy", tag="filtered"),
        ),
        learn=learn.Learn(*terms, updates=updates, minibatches=minibatches),
        models=ppo_models(critic_lr, reward_model),
    )
