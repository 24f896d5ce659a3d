"""Policy gradients without a critic: what a reply's score is compared with."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.credit.baselines import RunningMean, over_batch_mean, over_greedy
from burnish.credit.penalty import kl_on_tokens
from burnish.method import Method, Option, Part, chain, frozen, method, roles
from burnish.methods import opt, papers, register


def _reinforce(task: draw.Source, n: int, baseline: Part, reward_model: str | None) -> Method:
    """REINFORCE on n replies a prompt, with any baseline that writes stream "adv"."""
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=baseline,
        learn=learn.Learn(learn.pg_reinforce()),
        models=roles(**score.rm_role(reward_model)),
    )


@register(
    papers.REINFORCE,
    family="policy",
    summary="The score-function gradient, with the batch's mean score as its baseline.",
    when="One reply a prompt is all you can afford, or you want the plainest baseline to measure others by.",
)
def reinforce(task: draw.Source, *, n: opt.Replies = 1, reward_model: opt.RewardModel = None) -> Method:
    """REINFORCE (Williams 1992) with the mean of the batch as baseline.

    L = mean over replies of -A_i log pi(y_i | x),   A_i = r_i - mean r over the batch

    log pi is summed over the reply: the whole reply is one action. `reinforce_running` and `reinforce_loo` are the
    same with the mean of the past and with the mean of the other replies to the prompt.
    """
    return _reinforce(task, n, over_batch_mean(), reward_model)


@register(
    papers.REINFORCE,
    family="policy",
    summary="The score-function gradient, with a running mean of past scores as its baseline.",
    when="One reply a prompt, batches too small for a mean of their own, and rewards that drift slowly.",
)
def reinforce_running(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    decay: Annotated[float, Option("Share of its past that the baseline keeps.", at_least=0, below=1)] = 0.9,
    reward_model: opt.RewardModel = None,
) -> Method:
    """REINFORCE (Williams 1992) with a running mean of past scores as baseline ("reinforcement comparison").

    L = mean over replies of -(r_i - b) log pi(y_i | x),   then b <- decay b + (1 - decay) mean r,   b = 0 at the start

    b does not know the batch that it is compared with, so the gradient is unbiased.
    """
    return _reinforce(task, n, credit.over_memory(RunningMean("baseline", decay)), reward_model)


@register(
    papers.REINFORCE,
    family="policy",
    summary="The score-function gradient, each reply compared with the others to its prompt.",
    when="Several replies a prompt, and you want an unbiased gradient without a critic, a clip or a KL.",
)
def reinforce_loo(task: draw.Source, *, n: opt.GroupSize = 4, reward_model: opt.RewardModel = None) -> Method:
    """REINFORCE (Williams 1992) with a leave-one-out baseline.

    L = mean over replies of -A_i log pi(y_i | x),   A_i = r_i - mean of the other n - 1 replies to the prompt

    `rloo` without its KL.
    """
    return _reinforce(task, n, credit.leave_one_out(), reward_model)


@register(
    papers.RLOO,
    family="policy",
    summary="REINFORCE on whole replies, each compared with the others to its prompt, KL in the reward.",
    when="RLHF with a reward model, several replies a prompt, and memory too short for a critic.",
)
def rloo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    beta: Annotated[float, Option("Coefficient of the KL, inside the score; 0 loads no reference.", at_least=0)] = 0.03,
    reward_model: opt.RewardModel = None,
) -> Method:
    """REINFORCE leave-one-out.

    R_i = r_i - beta log(pi_old / ref)(y_i),   A_i = R_i - mean of the other n - 1 = n / (n - 1) (R_i - mean R)
    L = mean over replies of -A_i log pi(y_i | x)

    log pi and the KL are summed over the reply, one action; the KL stands in the reward, before the baseline, and
    is held. One update a batch, so that no ratio is needed. n = 2 and 4, and beta = 0.03, are the paper's.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=chain(
            credit.behaviour(), credit.ref(), credit.kl_in_score(beta), credit.leave_one_out(score="penalised")
        ),
        learn=learn.Learn(learn.pg_reinforce()),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )


@register(
    papers.REMAX,
    family="policy",
    summary="REINFORCE with the score of the greedy reply as its baseline.",
    when="One sampled reply a prompt, and a greedy one is cheaper for you than a critic or a group.",
)
def remax(
    task: draw.Source,
    *,
    n: Annotated[int, Option("Replies sampled for each prompt besides the greedy one.", at_least=1)] = 1,
    beta: opt.KLPenalty = 0.1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """ReMax: a sample is compared with what the policy would say greedily.

    A_t = clip(r(y) - r(y_greedy), -5, 5) - beta log(pi_old / ref)(y_t)
    L = mean over sampled tokens of -A_t log pi(y_t | .)

    From the authors' code: each token pays the KL of itself alone ("one step"), the mean is over all tokens, no
    discount. The greedy reply is not trained. The paper samples 1 reply besides the greedy one.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.join(rollout.sample(n), rollout.greedy()),
        score=score.scoring(task, reward_model),
        credit=chain(
            credit.behaviour(),
            credit.ref(),
            over_greedy(),
            kl_on_tokens(beta, tag="sample"),
            credit.claim("pg", "policy", tag="sample"),
        ),
        learn=learn.Learn(learn.pg_reinforce(norm=learn.token_mean, on=learn.CLAIMED)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )


@register(
    papers.REINFORCE_PP,
    family="policy",
    summary="PPO without a critic: token KL in the reward, advantages whitened over the whole batch.",
    when="General RLHF over many kinds of prompts, one reply each, where group baselines would overfit easy prompts.",
)
def reinforce_pp(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLPenalty = 0.01,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """REINFORCE++.

    A_t = r - beta sum_{i >= t} log(pi_old / ref)(y_i), then (A_t - mean) / std over all reply tokens of the batch
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    std is that of the population (+1e-8), as in the authors' code; no discount.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=chain(
            credit.behaviour(), credit.ref(), credit.token_rewards(kl=beta), credit.rewards_to_go(), credit.whiten()
        ),
        learn=learn.Learn(learn.pg_clip(eps), updates=updates),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )


@register(
    papers.REINFORCE_PP,
    family="policy",
    summary="REINFORCE++ with the group's mean taken off first, and the KL as a loss.",
    when="Verifiable rewards with groups, some small or one-sided, where dividing by a group's own spread misleads.",
)
def reinforce_pp_baseline(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.01,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """REINFORCE++-baseline.

    A_i = r_i - mean r over the replies to the prompt, then (A - mean) / std over all reply tokens of the batch
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A) + beta (log pi - log ref)^2 / 2

    Whitening is per token, so that long replies weigh more and the mean is not 0 after the group's is taken off.
    That the KL is the k2 loss follows summaries of the paper's later versions and the advice of its authors' code.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=chain(credit.group_relative(std=False), credit.whiten(), credit.behaviour(), credit.ref()),
        learn=learn.Learn(learn.pg_clip(eps), learn.kl_k2(coef=beta), updates=updates),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )
