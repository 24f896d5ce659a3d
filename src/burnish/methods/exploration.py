"""Entropy, exploration and the policy's own confidence."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, ema, method, roles
from burnish.methods import opt, papers, register


@register(
    papers.ARBITRARY_ENTROPY_PO,
    family="policy",
    summary="Good replies sampled hotter or cooler than the policy hold its entropy at a target.",
    when="Entropy collapses or runs away in your runs, and you want to hold it at a chosen level.",
)
def aepo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 5,
    target: Annotated[float, Option("The entropy to hold; the authors' best run has 0.75.", at_least=0)] = 0.5,
    hot: Annotated[float, Option("Temperature while entropy is too low.", above=0)] = 1.2,
    cool: Annotated[float, Option("Temperature while entropy is too high.", above=0)] = 0.8,
    share: Annotated[float, Option("Share of prompts with tempered replies.", at_least=0, at_most=1)] = 0.25,
    above: Annotated[float, Option("Least advantage of a tempered reply that is learned from.")] = 0.05,
    most: Annotated[int, Option("Most tempered replies in a batch.", at_least=0)] = 60,
    eps: opt.ClipRange = 0.2,
    dual: opt.DualClip = 3.0,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """AEPO: GRPO, with part of the batch replaced by good samples of a tempered policy.

    grad J = grad J_GRPO + alpha E_{y ~ pi^T}[ R(y) grad log pi(y) ],   T = hot where H <= target, else cool
    H = -mean log pi of the tokens of the last update (0 at the start)

    As in the authors' trainer: n replies at temperature T to a quarter of the prompts; those whose advantage among
    them exceeds `above` take the place of the batch's first plain samples, min(most, their number) of them (half of
    that, rounded down, where H > target), with advantage 1, in the same loss: mean over tokens of -min(rho A,
    clip(rho) A) with the dual clip, pi_old at temperature 1. So alpha is the share of replaced replies. Plain
    samples: A = (r - mean) / (std + 1e-6) in their group. No KL.
    """
    meter = rollout.EntropyMeter(target, hot, cool)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.join(rollout.sample(n), rollout.tempered(n, meter, share=share)),
        score=score.scoring(task, reward_model),
        credit=chain(
            credit.group_relative(peers=lambda trace, group: "tempered" in trace.tags),
            credit.old(logp_temperature=1.0),
            credit.swap_in_tempered(meter, above=above, most=most),
            credit.claim("pg", "policy", tag="trained"),
        ),
        learn=learn.Learn(learn.pg_clip(eps, dual=dual, on=learn.CLAIMED), updates=updates, logp_temperature=1.0),
        models=roles(**score.rm_role(reward_model)),
    )


@register(
    papers.T1,
    family="policy",
    summary="Many hot samples, an entropy bonus, and a KL to a moving average of the policy.",
    when="You can sample many hot replies a prompt, and fear that the policy stops exploring.",
)
def t1(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    temperature: opt.Temperature = 1.2,
    beta: Annotated[float, Option("Coefficient of the KL to the anchor.", at_least=0)] = 0.01,
    decay: Annotated[
        float, Option("Share of itself that the anchor keeps at each step.", at_least=0, at_most=1)
    ] = 0.99,
    entropy: opt.EntropyCoef = 0.001,
    price: Annotated[float, Option("What a reply that is cut off or repeats itself loses.", at_least=0)] = 1.0,
    ngram: Annotated[int, Option("Length of a repetition, in tokens.", at_least=1)] = 8,
    times: Annotated[int, Option("Repetitions that are still free.", at_least=0)] = 4,
    reward_model: opt.RewardModel = None,
) -> Method:
    """The reinforcement learning of T1; its first stage, SFT on long thoughts with trial and error, is `sft`.

    R_i = r_i - price [cut off or repeating itself] - beta log(pi_old / anchor)(y_i)
    A_i = R_i - mean of the other n - 1
    L = mean over replies of -A_i log pi(y_i) - entropy (mean over tokens of the policy's entropy)
    anchor <- decay anchor + (1 - decay) pi after every step

    From the paper: oversampling at a high temperature (64 replies), the entropy bonus as an auxiliary loss, the
    dynamic anchor, penalties on repetition and over-length. Its constants and the place of its KL were not found:
    the leave-one-out baseline is `rloo`'s and centres the KL over the group; garbage text is not looked for.
    Inference scaling is no part of training. The paper samples 64 replies.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=chain(score.scoring(task, reward_model), score.price_astray(price, n=ngram, times=times)),
        credit=chain(
            credit.behaviour(),
            credit.ref("anchor"),
            credit.kl_in_score(beta, score="sane"),
            credit.leave_one_out(score="penalised"),
        ),
        learn=learn.Learn(learn.pg_reinforce(), learn.entropy_bonus(coef=entropy)),
        models=roles(anchor=ema("policy", decay), **score.rm_role(reward_model)),
    )


@register(
    papers.ESRL,
    family="policy",
    summary="REINFORCE against a queue of past scores, without the replies the policy is surest of.",
    when="Sampling is your bottleneck, and much of what is sampled is easy for the policy already.",
)
def esrl(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    drop: Annotated[float, Option("Share of the replies that is dropped.", at_least=0, below=1)] = 0.3,
    queue: Annotated[int, Option("Scores that the baseline remembers.", at_least=1)] = 512,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """ESRL: sample without a graph, keep what there is to learn from, then one parallel pass with gradient.

    H(y) = mean over tokens of the entropy of pi;   the ceil(drop N) of the batch's N replies of least H are dropped
    L = mean over the others of -(r - b) log pi(y | x),   b = mean of the last `queue` scores

    Two-stage sampling is how the engine always works. Dynamic sampling follows the authors' released code, which
    drops the 30% most confident replies; its measure is of the largest probability at each token, here it is the
    entropy itself. The paper's per-input sample sizes and temperatures are left out, and its baseline is taken to
    be a first-in-first-out queue; the released code puts the same dynamic sampling in front of PPO.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, reward_model),
        select=chain(credit.streams("policy", "policy", entropy="entropy"), select.drop_surest(drop)),
        credit=credit.over_memory(credit.RewardQueue("rewards", queue)),
        learn=learn.Learn(learn.pg_reinforce(norm=learn.seq_sum_mean)),
        models=roles(**score.rm_role(reward_model)),
    )


@register(
    papers.RLSC,
    family="policy",
    summary="No labels: raise the likelihood of samples by how likely they were.",
    when="There are no labels and no verifier, and the model is already good: a few steps sharpen what it believes.",
)
def rlsc(
    task: draw.Source,
    *,
    n: opt.Replies = 16,
    alpha: Annotated[float, Option("Smoothing that lets improbable replies count.", at_least=0)] = 0.1,
    temperature: opt.Temperature = 0.5,
) -> Method:
    """Reinforcement learning via self-confidence: maximise E_{y ~ pi}[ pi(y | x) ] = sum_y pi(y | x)^2.

    L = mean over replies of -(p_old(y | x) + alpha) log pi(y | x),   y ~ p_old, p_old held

    log pi is summed over the reply and p_old(y | x) is the probability of the whole reply, both at the sampling
    temperature (the paper's equation 6 and algorithm 1, with its constants). The verifier is not asked: this
    sharpens what the policy believes already, so watch held-out accuracy and stop after 10 to 20 steps, as the
    paper does. n = 16 is the paper's.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        credit=chain(credit.behaviour(), credit.own_probability(alpha)),
        learn=learn.Learn(learn.pg_reinforce()),
        models=roles(),
    )
