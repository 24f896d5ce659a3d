"""Several scored replies a prompt, compared as one list.

Where the data has ranked replies (`responses` with scores or ranks) these are the lists; else replies are sampled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.roles import snapshot
from burnish.credit import by_bradley_terry, by_comparison
from burnish.learn.terms import preference_lists as lists
from burnish.method import Method, Option, Part, Rollout, frozen, method, roles
from burnish.methods import opt, papers, register


@dataclass(frozen=True)
class _Lists:
    """Where the replies of a list come from: who wrote them, how they are scored."""

    author: str
    rollout: Rollout
    score: Part

    @classmethod
    def of(cls, task: draw.Source, sampled: Rollout, author: str, reward_model: str | None) -> _Lists:
        """Those of the data, where it has any, else sampled ones."""
        if "responses" in task.gives:
            own = score.reward_model(author="demo") if reward_model else score.given_scores()
            return cls("demo", rollout.listed(), own)
        return cls(author, sampled, score.scoring(task, reward_model, author=author))


@register(
    papers.LIPO,
    family="preference",
    summary="Learning to rank: a pair counts by how much swapping it would change the ranking's quality.",
    when="Several graded replies a prompt, whose order matters most at the top.",
)
def lipo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    beta: opt.Beta = 0.05,
    temperature: opt.Temperature = 0.7,
    top_k: Annotated[int, Option("Samples come from this many likeliest tokens; 0 is all.", at_least=0)] = 40,
    reward_model: opt.RewardModel = None,
) -> Method:
    """LiPO-lambda.

    s_i = beta [log pi(y_i|x) - log ref(y_i|x)];  psi_i = mean over the list of P(y_i > y_j);  tau_i = rank by s, held
    L = sum over psi_i > psi_j of |2^psi_i - 2^psi_j| |1/log(1+tau_i) - 1/log(1+tau_j)| log(1 + e^-(s_i - s_j))

    Mean over prompts. Replies are the reference's, as in the paper; P is a reward model's, or 1, 1/2, 0 by the
    verifier. With two replies it is DPO times a constant. n, beta, temperature and top_k are the paper's.
    """
    preference = by_bradley_terry if reward_model else by_comparison
    sampled = rollout.sample(n, who="ref", temperature=temperature, top_k=top_k)
    replies = _Lists.of(task, sampled, "ref", reward_model)
    return method(
        draw=draw.prompts(task),
        rollout=replies.rollout,
        score=chain(replies.score, score.win_rates(preference)),
        select=select.whole_lists("wins"),
        credit=chain(credit.ref(logp_temperature=1.0), credit.shared("wins", "psi")),
        learn=learn.Learn(lists.lambda_rank(beta, on=replies.author), logp_temperature=1.0),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.PRO,
    family="preference",
    summary="A ranking loss whose temperatures are reward gaps, and imitation of the best reply.",
    when="Ranked replies of any number, no reference model.",
)
def pro(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    sft: Annotated[float, Option("Weight of imitating the best reply, times (n - 1)^2.", at_least=0)] = 0.05,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """PRO.

    m_i = log pi(y_i|x) / |y_i|, best first;  1/T_ki = r_k - r_i,  1/T_kk = max over i > k of r_k - r_i
    L = sum over k < n of -log[ e^(m_k/T_kk) / sum over i >= k of e^(m_i/T_ki) ] + sft (n - 1)^2 (-log pi(y_1|x))

    Mean over prompts. The imitation is summed over tokens while the scores are means, as in the authors' code.
    Where the data has no ranked replies they are sampled from the starting policy. Equal rewards exclude nothing.
    """
    sampled = rollout.sample(n, who="start", temperature=temperature)
    replies = _Lists.of(task, sampled, "start", reward_model)
    start = {"start": frozen("policy")} if replies.author == "start" else {}
    return method(
        draw=draw.prompts(task),
        rollout=replies.rollout,
        score=replies.score,
        select=select.unequal_lists(),
        credit=chain(credit.shared("reward", "psi"), credit.claim("sft", replies.author, tag="best")),
        learn=learn.Learn(
            lists.reward_ranking(on=replies.author),
            learn.imitate(coef=sft * (n - 1) ** 2, norm=learn.seq_sum_mean, on=learn.CLAIMED),
        ),
        models=roles(**start, **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.BRAIN,
    family="preference",
    summary="Match the reward-conditioned posterior of the starting policy by self-normalised importance sampling.",
    when="Several scored replies a prompt, and rewards whose size matters, not only their order.",
    trial={"n": 4, "sync": 1},
)
def brain(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    gamma: Annotated[float, Option("Temperature of the reward in the posterior.", above=0)] = 1.0,
    sync: Annotated[int, Option("Steps after which the proposal takes the policy's weights.", at_least=1)] = 10,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """BRAIn.

    y_1..y_n ~ q' (an earlier policy);  a = softmax(log ref + r/gamma - log q'), held;  b = softmax(log pi - log q')
    L = KL(a || b) = sum a log(a / b),  mean over prompts;  its gradient is -sum (a_i - b_i) grad log pi(y_i|x)

    Two replies, q' = ref and a certain reward are DPO with beta = 1. n = 8 is that of the authors' example; gamma and
    how often the proposal is renewed were not available.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past", temperature=temperature),
        score=score.scoring(task, reward_model, author="past"),
        select=select.whole_lists(),
        credit=chain(credit.ref(), credit.behaviour("past"), credit.shared("reward", "psi")),
        learn=learn.Learn(lists.posterior(gamma, on="past")),
        models=roles(ref=frozen("policy"), past=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.NCA,
    family="preference",
    summary="NCA on several replies with explicit rewards.",
    when="As `nca`, with a reward for each of several replies.",
)
def nca_rewards(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    beta: opt.Beta = 0.01,
    scale: Annotated[float, Option("Temperature of the softmax over rewards.", above=0)] = 1e-3,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """NCA with rewards.

    r_i = beta [log pi(y_i|x) - log ref(y_i|x)];  c = softmax(reward / scale)
    L = -sum c_i log s(r_i) - (1/n) sum log s(-r_i),  mean over prompts

    Replies are the reference's. Two replies and scale -> 0 are `nca`. scale is the default of the authors' code.
    """
    replies = _Lists.of(task, rollout.sample(n, who="ref", temperature=temperature), "ref", reward_model)
    return method(
        draw=draw.prompts(task),
        rollout=replies.rollout,
        score=replies.score,
        select=select.whole_lists(),
        credit=chain(credit.ref(), credit.shared("reward", "psi")),
        learn=learn.Learn(lists.nca_rewards(beta, scale, on=replies.author)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.EXO,
    family="preference",
    summary="EXO on several replies with rewards.",
    when="As `exo`, with a reward for each of several replies.",
)
def exo_rewards(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    beta: opt.Beta = 0.5,
    beta_reward: Annotated[float, Option("Temperature of the rewards' distribution.", above=0)] = 0.5,
    temperature: opt.Temperature = 0.8,
    reward_model: opt.RewardModel = None,
) -> Method:
    """EXO with rewards.

    p = softmax(beta lr),  q = softmax(r / beta_reward),  lr_i = log pi(y_i|x) - log ref(y_i|x)
    L = KL(p || q),  mean over prompts

    Replies are the reference's. The constants are the authors' for dialogue and summaries.
    """
    replies = _Lists.of(task, rollout.sample(n, who="ref", temperature=temperature), "ref", reward_model)
    return method(
        draw=draw.prompts(task),
        rollout=replies.rollout,
        score=replies.score,
        select=select.whole_lists(),
        credit=chain(credit.ref(logp_temperature=1.0), credit.shared("reward", "psi")),
        learn=learn.Learn(lists.exo_rewards(beta, beta_reward, on=replies.author), logp_temperature=1.0),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
