"""Entropy, exploration and the policy's own confidence."""

from __future__ import annotations

from burnish.cast.roles import ema, stage
from burnish.credit.baselines import RewardQueue, leave_one_out, over_memory
from burnish.credit.confidence import own_probability
from burnish.credit.entropy_control import swap_in_tempered
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.credit.penalty import kl_in_score
from burnish.credit.streams import behaviour, old, ref, streams
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_sum_mean
from burnish.learn.terms import entropy_bonus, pg_clip, pg_reinforce
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.sample import join, sample
from burnish.rollout.tempered import EntropyMeter, tempered
from burnish.score.model import rm_role, scoring
from burnish.score.sanity import price_astray
from burnish.select.confidence import drop_surest
from burnish.tasks.source import Source


@register(
    family="policy",
    catalogue=("arbitrary-entropy-po",),
    title="Arbitrary Entropy Policy Optimization: Entropy Is Controllable in Reinforcement Fine-tuning",
    arxiv="2510.08141",
    summary="Good replies sampled hotter or cooler than the policy hold its entropy at a target.",
    when="Entropy collapses or runs away in your runs, and you want to hold it at a chosen level.",
    trial={"n": 4},
)
def aepo(
    task: Source, *, n: int = 5, target: float = 0.5, hot: float = 1.2, cool: float = 0.8, share: float = 0.25, above: float = 0.05, most: int = 60,
    eps: float = 0.2, dual: float = 3.0, updates: int = 1, reward_model: str | None = None,
) -> Method:  # fmt: skip
    """AEPO: GRPO, with part of the batch replaced by good samples of a tempered policy.

    grad J = grad J_GRPO + alpha E_{y ~ pi^T}[ R(y) grad log pi(y) ],   T = hot where H <= target, else cool
    H = -mean log pi of the tokens of the last update (0 at the start)

    As in the authors' trainer: n replies at temperature T to a quarter of the prompts; those whose advantage among them
    exceeds `above` take the place of the batch's first plain samples, at most `most` of them (half of it where H > target), with
    advantage 1, in the same loss: mean over tokens of -min(rho A, clip(rho) A) with the dual clip, pi_old at temperature 1.
    So alpha is the share of replaced replies. Plain samples: A = (r - mean) / (std + 1e-6) in their group. No KL.
    n: replies sampled for each prompt. target: the entropy to hold; the authors' best run has 0.75.
    hot: temperature while entropy is too low. cool: temperature while it is too high. share: share of prompts with tempered replies.
    above: least advantage of a tempered reply that is learned from. most: most tempered replies in a batch.
    eps: the clip range. dual: the second clip where A < 0. updates: passes over each batch.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    meter = EntropyMeter(target, hot, cool)
    return method(
        draw=prompts(task),
        rollout=join(sample(n), tempered(n, meter, share=share)),
        score=scoring(task, reward_model),
        credit=chain(
            group_relative(peers=lambda trace, group: "tempered" in trace.tags), old(), swap_in_tempered(meter, above=above, most=most),
            member("pg", "policy", tag="trained"),
        ),
        learn=Learn(pg_clip(eps, dual=dual), epochs=updates),
        cast=stage(**rm_role(reward_model)),
    )  # fmt: skip


@register(
    family="policy",
    catalogue=("t1",),
    title="T1: Advancing Language Model Reasoning through Reinforcement Learning and Inference Scaling",
    arxiv="2501.11651",
    summary="Many hot samples, an entropy bonus, and a KL to a moving average of the policy.",
    when="You can sample many hot replies a prompt, and fear that the policy stops exploring.",
    trial={"n": 4},
)
def t1(
    task: Source, *, n: int = 8, temperature: float = 1.2, beta: float = 0.01, decay: float = 0.99, entropy: float = 0.001, price: float = 1.0,
    ngram: int = 8, times: int = 4, reward_model: str | None = None,
) -> Method:  # fmt: skip
    """The reinforcement learning of T1; its first stage, SFT on long thoughts with trial and error, is `sft`.

    R_i = r_i - price [cut off or repeating itself] - beta log(pi_old / anchor)(y_i),   A_i = R_i - mean of the other n - 1
    L = mean over replies of -A_i log pi(y_i) - entropy (mean over tokens of the policy's entropy)
    anchor <- decay anchor + (1 - decay) pi after every step

    From the paper: oversampling at a high temperature (64 replies), the entropy bonus as an auxiliary loss, the dynamic anchor,
    penalties on repetition and over-length. Its constants and the place of its KL were not found: the leave-one-out baseline is
    `rloo`'s and centres the KL over the group; garbage text is not looked for. Inference scaling is no part of training.
    n: replies sampled for each prompt; the paper has 64. beta: coefficient of the KL to the anchor.
    decay: the share of itself that the anchor keeps at each step. entropy: coefficient of the entropy bonus.
    price: what a reply that is cut off or repeats itself loses. ngram: length of a repetition, in tokens.
    times: repetitions that are still free.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=chain(scoring(task, reward_model), price_astray(price, n=ngram, times=times)),
        credit=chain(
            behaviour(), ref("anchor", temperature=temperature), kl_in_score(beta, score="sane"), leave_one_out(score="penalised"),
            member("pg", "policy"), member("entropy", "policy"),
        ),
        learn=Learn(pg_reinforce(), entropy_bonus(coef=entropy), temperature=temperature),
        cast=stage(anchor=ema("policy", decay), **rm_role(reward_model)),
    )  # fmt: skip


@register(
    family="policy",
    catalogue=("esrl",),
    title="ESRL: Efficient Sampling-based Reinforcement Learning for Sequence Generation",
    arxiv="2308.02223",
    summary="REINFORCE against a queue of past scores, without the replies the policy is surest of.",
    when="Sampling is your bottleneck and much of what is sampled is easy: what the policy is sure of need not be learned.",
    trial={"n": 4},
)
def esrl(
    task: Source, *, n: int = 1, drop: float = 0.3, queue: int = 512, temperature: float = 1.0, reward_model: str | None = None
) -> Method:  # fmt: skip
    """ESRL: sample without a graph, keep what there is to learn from, then one parallel pass with gradient.

    H(y) = mean over tokens of the entropy of pi;   the ceil(drop N) of the batch's N replies of least H are dropped
    L = mean over the others of -(r - b) log pi(y | x),   b = mean of the last `queue` scores

    Two-stage sampling is how the engine always works. Dynamic sampling follows the authors' released code, which drops the 30%
    most confident replies; its measure is of the largest probability at each token, here it is the entropy itself. The
    paper's per-input sample sizes and temperatures are left out, and its baseline is taken to be a first-in-first-out queue;
    the released code puts the same dynamic sampling in front of PPO.
    n: replies sampled for each prompt. drop: share of the replies that is dropped. queue: scores that the baseline remembers.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        select=chain(streams("policy", "policy", entropy="entropy", temperature=temperature), drop_surest(drop)),
        credit=chain(over_memory(RewardQueue("rewards", queue)), member("pg", "policy")),
        learn=Learn(pg_reinforce(norm=seq_sum_mean), temperature=temperature),
        cast=stage(**rm_role(reward_model)),
    )


@register(
    family="policy",
    catalogue=("rlsc",),
    title="Confidence Is All You Need: Few-Shot RL Fine-Tuning of Language Models",
    arxiv="2506.06395",
    summary="No labels: raise the likelihood of samples by how likely they were.",
    when="There are no labels and no verifier, and the model is already good: a few steps sharpen what it believes.",
    trial={"n": 4},
)
def rlsc(task: Source, *, n: int = 16, alpha: float = 0.1, temperature: float = 0.5) -> Method:
    """Reinforcement learning via self-confidence: maximise E_{y ~ pi}[ pi(y | x) ] = sum_y pi(y | x)^2.

    L = mean over replies of -(p_old(y | x) + alpha) log pi(y | x),   y ~ p_old, p_old held

    log pi is summed over the reply and p_old(y | x) is the probability of the whole reply, both at the sampling temperature
    (the paper's equation 6 and algorithm 1, with its constants). The verifier is not asked: this
    sharpens what the policy believes already, so watch held-out accuracy and stop after 10 to 20 steps, as the paper does.
    n: replies sampled for each prompt; 16 is the paper's. alpha: smoothing that lets improbable replies count.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        credit=chain(behaviour(), own_probability(alpha), member("pg", "policy")),
        learn=Learn(pg_reinforce(), temperature=temperature),
        cast=stage(),
    )
