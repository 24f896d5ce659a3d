"""Policy gradients without a critic: what a reply's score is compared with."""

from __future__ import annotations

from burnish.cast.roles import frozen, stage
from burnish.credit.baselines import (
    RunningMean,
    leave_one_out,
    over_batch_mean,
    over_greedy,
    over_length_weighted_mean,
    over_memory,
)
from burnish.credit.gae import token_rewards, whiten
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.credit.penalty import kl_in_score, kl_on_tokens, rewards_to_go
from burnish.credit.streams import behaviour, ref
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import token_mean
from burnish.learn.terms import pg_clip, pg_reinforce
from burnish.learn.terms.policy import kl_k2
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.parts import Part, chain
from burnish.rollout.sample import greedy, join, sample
from burnish.score.model import rm_role, scoring
from burnish.tasks.source import Source

_REINFORCE = "Simple statistical gradient-following algorithms for connectionist reinforcement learning"
_PLUS_PLUS = "REINFORCE++: A Simple and Efficient Approach for Aligning Large Language Models"


def _reinforce(task: Source, n: int, baseline: Part, temperature: float, reward_model: str | None) -> Method:
    """REINFORCE on n replies a prompt, with any baseline that writes stream "adv"."""
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        credit=chain(baseline, member("pg", "policy")),
        learn=Learn(pg_reinforce(), temperature=temperature),
        cast=stage(**rm_role(reward_model)),
    )


@register(
    family="policy",
    catalogue=("reinforce",),
    title=_REINFORCE,
    summary="The score-function gradient, with the batch's mean score as its baseline.",
    when="One reply a prompt is all you can afford, or you want the plainest baseline to measure others by.",
    trial={"n": 4},
)
def reinforce(task: Source, *, n: int = 1, temperature: float = 1.0, reward_model: str | None = None) -> Method:
    """REINFORCE (Williams 1992) with the mean of the batch as baseline.

    L = mean over replies of -A_i log pi(y_i | x),   A_i = r_i - mean r over the batch

    log pi is summed over the reply: the whole reply is one action. `reinforce_running` and `reinforce_loo` are the same with
    the mean of the past and with the mean of the other replies to the prompt.
    n: replies sampled for each prompt.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return _reinforce(task, n, over_batch_mean(), temperature, reward_model)


@register(
    family="policy",
    catalogue=("reinforce",),
    title=_REINFORCE,
    summary="The score-function gradient, with a running mean of past scores as its baseline.",
    when="One reply a prompt, batches too small for a mean of their own, and rewards that drift slowly.",
    trial={"n": 4},
)
def reinforce_running(
    task: Source, *, n: int = 1, decay: float = 0.9, temperature: float = 1.0, reward_model: str | None = None
) -> Method:
    """REINFORCE (Williams 1992) with a running mean of past scores as baseline ("reinforcement comparison").

    L = mean over replies of -(r_i - b) log pi(y_i | x),   then b <- decay b + (1 - decay) mean r,   b = 0 at the start

    b does not know the batch that it is compared with, so the gradient is unbiased.
    n: replies sampled for each prompt. decay: the share of its past that the baseline keeps at each step.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return _reinforce(task, n, over_memory(RunningMean("baseline", decay)), temperature, reward_model)


@register(
    family="policy",
    catalogue=("reinforce",),
    title=_REINFORCE,
    summary="The score-function gradient, each reply compared with the others to its prompt.",
    when="Several replies a prompt, and you want an unbiased gradient without a critic, a clip or a KL.",
    trial={"n": 4},
)
def reinforce_loo(task: Source, *, n: int = 4, temperature: float = 1.0, reward_model: str | None = None) -> Method:
    """REINFORCE (Williams 1992) with a leave-one-out baseline.

    L = mean over replies of -A_i log pi(y_i | x),   A_i = r_i - mean of the other n - 1 replies to the prompt

    `rloo` without its KL.
    n: replies sampled for each prompt, at least 2.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    _at_least_two(n)
    return _reinforce(task, n, leave_one_out(), temperature, reward_model)


def _at_least_two(n: int) -> None:
    if n < 2:
        raise ValueError(f"n is {n}; a reply is compared with the others to its prompt, so sample at least 2")


@register(
    family="policy",
    catalogue=("rloo",),
    title="Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs",
    arxiv="2402.14740",
    summary="REINFORCE on whole replies, each compared with the others to its prompt, KL in the reward.",
    when="RLHF with a reward model, several replies a prompt, and memory too short for a critic.",
    trial={"n": 4},
)
def rloo(
    task: Source, *, n: int = 4, beta: float = 0.03, temperature: float = 1.0, reward_model: str | None = None
) -> Method:
    """REINFORCE leave-one-out.

    R_i = r_i - beta log(pi_old / ref)(y_i),   A_i = R_i - mean of the other n - 1 = n / (n - 1) (R_i - mean R)
    L = mean over replies of -A_i log pi(y_i | x)

    log pi and the KL are summed over the reply, one action; the KL stands in the reward, before the baseline, and is held.
    One update a batch, so that no ratio is needed.
    n: replies sampled for each prompt; the paper has 2 and 4. beta: coefficient of the KL; 0.03 is the paper's.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    _at_least_two(n)
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        credit=chain(
            behaviour(),
            ref(temperature=temperature),
            kl_in_score(beta),
            leave_one_out(score="penalised"),
            member("pg", "policy"),
        ),
        learn=Learn(pg_reinforce(), temperature=temperature),
        cast=stage(ref=frozen("policy"), **rm_role(reward_model)),
    )


@register(
    family="policy",
    catalogue=("remax",),
    title="ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning Large Language Models",
    arxiv="2310.10505",
    summary="REINFORCE with the score of the greedy reply as its baseline.",
    when="One sampled reply a prompt, and a greedy one is cheaper for you than a critic or a group.",
    trial={"n": 4},
)
def remax(
    task: Source, *, n: int = 1, beta: float = 0.1, temperature: float = 1.0, reward_model: str | None = None
) -> Method:
    """ReMax: a sample is compared with what the policy would say greedily.

    A_t = clip(r(y) - r(y_greedy), -5, 5) - beta log(pi_old / ref)(y_t)
    L = mean over sampled tokens of -A_t log pi(y_t | .)

    From the authors' code: each token pays the KL of itself alone ("one step"), the mean is over all tokens, no discount.
    The greedy reply is not trained.
    n: replies sampled for each prompt besides the greedy one; the paper samples 1. beta: KL penalty per token.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=join(sample(n, temperature=temperature), greedy()),
        score=scoring(task, reward_model),
        credit=chain(
            behaviour(),
            ref(temperature=temperature),
            over_greedy(),
            kl_on_tokens(beta, tag="sample"),
            member("pg", "policy", tag="sample"),
        ),
        learn=Learn(pg_reinforce(norm=token_mean), temperature=temperature),
        cast=stage(ref=frozen("policy"), **rm_role(reward_model)),
    )


@register(
    family="policy",
    catalogue=("reinforce-pp",),
    title=_PLUS_PLUS,
    arxiv="2501.03262",
    summary="PPO without a critic: token KL in the reward, advantages whitened over the whole batch.",
    when="General RLHF over many kinds of prompts, one reply each, where group baselines would overfit easy prompts.",
    trial={"n": 4},
)
def reinforce_pp(
    task: Source, *, n: int = 1, eps: float = 0.2, beta: float = 0.01, temperature: float = 1.0, updates: int = 1,
    reward_model: str | None = None,
) -> Method:  # fmt: skip
    """REINFORCE++.

    A_t = r - beta sum_{i >= t} log(pi_old / ref)(y_i), then (A_t - mean) / std over all reply tokens of the batch
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    std is that of the population (+1e-8), as in the authors' code; no discount.
    n: replies sampled for each prompt. eps: the clip range. beta: KL penalty per token, inside the reward.
    updates: passes over each batch. reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        credit=chain(
            behaviour(), ref(temperature=temperature), token_rewards(kl=beta), rewards_to_go(), whiten(), member("pg", "policy")
        ),
        learn=Learn(pg_clip(eps), epochs=updates, temperature=temperature),
        cast=stage(ref=frozen("policy"), **rm_role(reward_model)),
    )  # fmt: skip


@register(
    family="policy",
    catalogue=("reinforce-pp",),
    title=_PLUS_PLUS,
    arxiv="2501.03262",
    summary="REINFORCE++ with the group's mean taken off first, and the KL as a loss.",
    when="Verifiable rewards with groups, some of them small or one-sided, where dividing by a group's own spread misleads.",
    trial={"n": 4},
)
def reinforce_pp_baseline(
    task: Source, *, n: int = 8, eps: float = 0.2, beta: float = 0.01, temperature: float = 1.0, updates: int = 1,
    reward_model: str | None = None,
) -> Method:  # fmt: skip
    """REINFORCE++-baseline.

    A_i = r_i - mean r over the replies to the prompt, then (A - mean) / std over all reply tokens of the batch
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A) + beta (log pi - log ref)^2 / 2

    Whitening is per token, so that long replies weigh more and the mean is not 0 after the group's is taken off. That the
    KL is the k2 loss follows summaries of the paper's later versions and the advice of its authors' code.
    n: replies sampled for each prompt. eps: the clip range. beta: coefficient of the KL loss. updates: passes over each batch.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        credit=chain(
            group_relative(std=False), whiten(), behaviour(), ref(temperature=temperature), member("pg", "policy"), member("kl", "policy")
        ),
        learn=Learn(pg_clip(eps), kl_k2(coef=beta), epochs=updates, temperature=temperature),
        cast=stage(ref=frozen("policy"), **rm_role(reward_model)),
    )  # fmt: skip


@register(
    family="policy",
    catalogue=("opo",),
    title="On-Policy RL with Optimal Reward Baseline",
    arxiv="2505.23585",
    summary="Exact on-policy gradients with the length-weighted baseline of least variance.",
    when="Strictly on-policy runs in which replies differ much in length.",
    trial={"n": 4},
)
def opo(task: Source, *, n: int = 8, temperature: float = 1.0, reward_model: str | None = None) -> Method:
    """On-policy RL with optimal baseline.

    b = sum l_i r_i / sum l_i over the replies to the prompt, l_i their lengths;   A_i = r_i - b
    L = mean over tokens of -A_i log pi(y_t | .)

    Strictly on-policy: one update a batch, no ratio, no clip, no KL, no entropy bonus, no std.
    n: replies sampled for each prompt.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        credit=chain(over_length_weighted_mean(), member("pg", "policy")),
        learn=Learn(pg_reinforce(norm=token_mean), temperature=temperature),
        cast=stage(**rm_role(reward_model)),
    )
