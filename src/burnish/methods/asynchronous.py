"""Methods made for replies of older weights, which `--lag` brings: a bounded correction, and a loss that needs none."""

from __future__ import annotations

from burnish.cast.roles import frozen, stage
from burnish.credit.gae import token_rewards
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.credit.streams import behaviour, ref
from burnish.draw.replay import past_groups
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_sum_mean
from burnish.learn.terms.regression import balance
from burnish.learn.terms.surrogates import pg_held_ratio
from burnish.method import Method, Phase, method
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.recalled import recalled
from burnish.rollout.sample import sample
from burnish.schedules import linear
from burnish.score.verify import verify
from burnish.select.remember import Store, remember
from burnish.tasks.source import Source


@register(
    family="policy",
    catalogue=("llamarl",),
    title="LlamaRL: A Distributed Asynchronous Reinforcement Learning Framework for Efficient Large-scale LLM Training",
    arxiv="2505.24034",
    summary="REINFORCE with importance weights that are bounded above and nowhere else, for stale samples.",
    when="Sampling runs ahead of learning (`--lag`), and every token should keep its gradient.",
    example="burnish train aipo --lag 1",
    trial={"n": 4},
)
def aipo(task: Source, *, n: int = 8, rho: float = 4.0, minibatches: int = 1, temperature: float = 1.0) -> Method:
    """Asynchronous importance-weighted policy optimisation, the loss of LlamaRL.

    w_t = sg[min(pi / mu, rho)] at each token, mu the policy that sampled it;  A_i = r_i - mean r
    L = mean over replies of sum over tokens of -w_t A_i log pi;  no lower bound, no KL

    The paper takes rho between 2 and 10. On fresh samples w is 1: REINFORCE with the mean of the group as its baseline.
    The rest of the paper is a system: what of it is an option here stands in docs/async.md.
    Departures: the body of the paper could not be read, nor is there code: the formula follows its abstract and summaries; the
    group's mean as baseline and the sum over a reply's tokens are our reading.
    n: replies sampled for each prompt. rho: the largest weight. minibatches: updates made of each batch.
    """
    if rho <= 0:
        raise ValueError(f"rho is {rho}: no token would have a weight; take 2 to 10")
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(group_relative(std=False), behaviour(), member("pg", "policy")),
        learn=Learn(pg_held_ratio(0.0, rho, norm=seq_sum_mean), minibatches=minibatches, temperature=temperature),
        cast=stage(),
    )


@register(
    family="policy",
    catalogue=("tba",),
    title="Trajectory Balance with Asynchrony: Decoupling Exploration and Learning for Fast, Scalable LLM Post-Training",
    arxiv="2503.18929",
    summary="Trajectory balance on a replay of past replies: right for replies of any age, and it seeks variety.",
    when="Sampling runs far ahead of learning (`--lag`), or good replies are rare and worth learning from again.",
    example="burnish train tba --lag 1",
    trial={"n": 4, "updates": 1},
)
def tba(
    task: Source, *, n: int = 8, beta: float = 0.1, beta_end: float | None = None, recent: float = 0.95, updates: int = 2,
    capacity: int = 512, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Trajectory balance with asynchrony.

    d_i = log pi(y_i)/ref(y_i) - r_i / beta;   log Z = sg[mean_j -d_j] over the n replies to a prompt
    L = mean over prompts of mean over replies of (log Z + d_i)^2

    Each step samples and scores replies into a replay (with `--lag`, ahead of learning), then makes `updates` updates, each on
    as many remembered prompts as a step has. For each of these, with the chance `recent`: one of the newest groups; else any
    prompt, and n of its remembered replies, the likelier the better they were rewarded. The loss holds for replies of any policy,
    so nothing is corrected for their age.
    n: replies sampled for each prompt. beta: how strongly the policy is held to the reference. beta_end: where beta falls or
    rises to, in a straight line over the run. recent: the chance of the newest groups. updates: updates a step, between two
    synchronisations. capacity: groups that the replay holds.
    Checked against the authors' code (github.com/bbartoldson/TBA): the loss, log Z, the coin for each prompt, replies by
    exp(reward) without replacement, the frozen reference and 2 updates between synchronisations are the same. It takes n = 20; on
    GSM8K beta = 0.014 to 0.004 and recent = 0.95, on TL;DR 1 to 0.05 and 0.5.
    Departures: the code samples up to 1.2 n replies to a prompt before it draws n, and goes through all old prompts before it
    takes one twice; here n are sampled, and old prompts are drawn anew for each update. Its 500 replies before the first update are
    left out, and the replay has one limit for all prompts.
    """
    replay = Store("replay", capacity)
    search = Phase(
        name="search",
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        select=remember(replay, "score:reward", "mu:policy"),
        learn=Learn(),
    )
    train = Phase(
        name="train",
        times=updates,
        draw=past_groups(replay, recent, n),
        rollout=recalled(),
        credit=chain(ref(temperature=temperature), token_rewards(kl=None), member("tb", "policy")),
        learn=Learn(balance(beta if beta_end is None else linear(beta, beta_end)), temperature=temperature),
    )
    return Method(cast=stage(ref=frozen("policy")), phases=(search, train))
