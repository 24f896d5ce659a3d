"""Stages of published recipes that no other method has (`burnish recipe` runs the whole ones)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register

Refills = Annotated[int, Option("How often a step fills up its batch after the filter.", at_least=0)]


@register(
    papers.TULU3,
    family="preference",
    summary="DPO on log-ratios that are divided by the length of the reply.",
    when="DPO's replies grow longer, or the pairs differ much in length.",
)
def dpo_norm(task: draw.Source, *, beta: opt.Beta = 5.0) -> Method:
    """Length-normalised DPO (Tulu 3, section 5).

    L = -log sigmoid( beta/|y_w| log pi(y_w|x)/ref(y_w|x) - beta/|y_l| log pi(y_l|x)/ref(y_l|x) ),  mean over pairs

    beta = 5 is the paper's; it is larger than DPO's because log-ratios are those of a mean token. For replies of one
    length T it is DPO with beta / T.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(learn.dpo_normalised(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.LLAMA_NEMOTRON,
    family="preference",
    summary="Online DPO whose margin should be as large as the difference of the rewards.",
    when="A reward model gives scores whose size means something, and DPO pushes small differences too far.",
)
def reward_aware_po(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    beta: opt.Beta = 0.1,
    eta: Annotated[float, Option("What a point of reward counts.", above=0)] = 3.0,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Online reward-aware preference optimisation, the RLHF of Llama-Nemotron (section 6.2; RPO: arXiv 2406.11704).

    L = D[ beta (log pi(y_w)/ref(y_w) - log pi(y_l)/ref(y_l)) || eta (r_w - r_l) ],  mean over pairs
    D[a || b] = s(b) log(s(b) / s(a)) + (1 - s(b)) log((1 - s(b)) / (1 - s(a)))

    y_w, y_l: the best and the worst of n replies of the policy. A large eta is online DPO. eta = 3 is the paper's; its
    beta of 1e-5 lets the policy go far from the reference, and 0.1 is ours (LN-Nano: 0.03). n is not printed.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, reward_model),
        select=select.best_vs_worst(),
        credit=chain(credit.ref(), credit.shared("reward", "reward")),
        learn=learn.Learn(learn.reward_aware_pairs(beta, eta)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.KIMI_K1_5,
    family="policy",
    summary="Policy gradient with the group's mean as baseline, and a squared pull to the policy that sampled.",
    when="Several updates of a batch without ratios and clips; long replies, whose ratios are noisy.",
)
def mirror_descent(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    tau: Annotated[float, Option("How strongly the policy is held to the one that sampled.", at_least=0)] = 0.1,
    updates: opt.Updates = 4,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Online policy mirror descent of Kimi k1.5 (section 2.3.2, Eq. 3).

    L = mean over replies of [ -(r_i - mean r) log pi(y_i) + tau/2 (log pi(y_i) / pi_old(y_i))^2 ]

    log pi is summed over the reply; pi_old is the policy that sampled, the paper's reference of the iteration. The
    first update has no pull, as pi = pi_old, whose log-probs the trainer computes itself: the sampler's rounding would
    add up over a reply. tau = 0 and one update is REINFORCE with the group's mean. tau and the
    number of updates are not printed. Left out: the reset of the optimiser at each iteration. The paper's length reward
    is --shape group_length, its sampling --draw prioritised, its partial rollouts --chunk.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        credit=chain(credit.group_relative(std=False), credit.old()),
        learn=learn.Learn(learn.pg_reinforce(), learn.pull_to_old(coef=tau), updates=updates),
        models=roles(),
    )


@register(
    papers.MIMO,
    family="policy",
    summary="DAPO without a length punishment, whose solved problems rest in a pool and come back seldom.",
    when="Many problems are solved by now, and sampling them again is wasted; forgetting them is not wanted either.",
)
def mimo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    alpha: Annotated[float, Option("Chance of a slot to come from the pool.", at_least=0, at_most=1)] = 0.1,
    refills: Refills = 3,
    minibatches: opt.Minibatches = 4,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """The RL of MiMo-7B (section 3.3): GRPO without KL, dynamic sampling, a higher upper clip, and an easy data pool.

    A_i = (r_i - mean r) / std r in groups with 0 < right < n;   L = mean over tokens of -min(rho A, clip(rho) A)
    a problem whose replies are all right goes into the pool; a slot is drawn from the pool with chance alpha, else from
    the other problems

    alpha = 0.1 is the paper's, which prints neither n nor the clip, and makes 16 updates of a batch. A problem that is
    drawn from the pool and no longer solved leaves it: the natural reading.
    """
    pool = draw.EasyPool()
    drawn, sampled = draw.apart_from_easy(task, pool, alpha), rollout.sample(n, temperature=temperature)
    scored = chain(score.verify(task), draw.note_solved(pool))
    return method(
        draw=drawn,
        rollout=sampled,
        score=scored,
        select=select.refilled(select.mixed(), drawn, sampled, scored, refills),
        credit=chain(credit.group_relative(), credit.behaviour(), credit.claim("pg", "policy", tag="mixed")),
        learn=learn.Learn(
            learn.pg_clip(eps_low, eps_high, norm=learn.token_mean, on=learn.CLAIMED), minibatches=minibatches
        ),
        models=roles(),
    )


@register(
    papers.AM_THINKING,
    family="policy",
    summary="GRPO without KL that learns nothing from replies which were cut off.",
    when="The longest reply is still too short for some problems, and their cut-off replies are no mistakes.",
    trial={"cut_off": 0.5},
)
def am_thinking(
    task: draw.Source,
    *,
    n: opt.GroupSize = 16,
    eps: opt.ClipRange = 0.2,
    cut_off: Annotated[float, Option("What a reply that was cut off weighs.", at_least=0, at_most=1)] = 0.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """The RL of AM-Thinking-v1: GRPO without KL, on-policy, cut-off replies excluded from the loss.

    A_i = (r_i - mean r) / std r over the n replies to one prompt, times cut_off for a reply that was cut off
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A);   one update a batch

    With cut_off = 0, the paper's, a reply that was cut off counts in the mean and the deviation of its group, and has
    no gradient; cut_off = 1 is GRPO without KL, with a token mean. Only reviews of the report could be read; the mean
    over tokens is ours.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.weigh_cut_off(cut_off), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.token_mean)),
        models=roles(),
    )


@register(
    papers.CONFUCIUS3,
    family="policy",
    summary="GRPO with a penalty for the distance of the entropy from a target, on either side.",
    when="Entropy runs away upwards (mixed languages) or collapses.",
)
def targeted_entropy(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    target: Annotated[float, Option("The entropy to hold, in nats.", at_least=0)] = 0.55,
    coef: Annotated[float, Option("Weight of the distance.", at_least=0)] = 0.001,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Targeted entropy regularisation (Confucius3-Math, section 6.1), the first stage of its RL.

    L = L_GRPO + coef |H - target|,   H = mean over the tokens of the batch of the policy's entropy

    The gradient of |H - target| is sign(H - target) grad H; the sign is that of the whole batch before the update. coef
    = 0 is GRPO. target 0.55 and coef 0.001 are the paper's.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        credit=chain(
            credit.group_relative(),
            credit.behaviour(),
            credit.ref(),
            credit.streams("policy", "policy", entropy="entropy"),
            credit.entropy_side(target),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean),
            learn.kl_k3(coef=beta, norm=learn.seq_mean),
            learn.entropy_towards(coef=coef),
        ),
        models=roles(ref=frozen("policy")),
    )


@register(
    papers.CONFUCIUS3,
    family="policy",
    summary="DAPO with advantages weighed by hardness, whose surplus groups are used in the next batch.",
    when="Dynamic sampling wastes replies, and hard prompts should count more.",
)
def confucius3(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    alpha: Annotated[
        float, Option("How the weight of a prompt changes with its mean score.", at_least=-1, at_most=1)
    ] = -0.256,
    offset: Annotated[float, Option("The weight of a prompt of which half is right.", above=0)] = 1.256,
    refills: Refills = 3,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """DAPO with recent sample recovery and policy-specific hardness weighting (Confucius3-Math, sections 6.2 and 6.3).

    R_i = 1 or -1,  mu = mean R,  A_i = (R_i - mu)(alpha mu + offset),  in groups with 0 < right < n
    L = sum over tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A) / (replies x longest reply)

    A batch begins with the mixed groups that the last one had no room for; whole batches are sampled until it is full
    (at most `refills` more; the paper has no limit). alpha and offset are the paper's: a prompt that is never solved
    weighs 1.512, one that always is 1. pi_old is computed by the trainer before the update, so that recovered replies
    are treated as fresh ones: the paper found no use in importance weights. The clip is DAPO's; the paper prints none.
    """
    drawn, sampled = draw.prompts(task), rollout.sample(n, temperature=temperature)
    scored = score.verify(task)
    store = select.Store("recent", 10_000)
    return method(
        draw=drawn,
        rollout=sampled,
        score=scored,
        select=select.recovered(select.mixed(), drawn, sampled, scored, refills, store),
        credit=chain(credit.by_hardness(alpha, offset), credit.old(), credit.claim("pg", "policy", tag="mixed")),
        learn=learn.Learn(learn.pg_clip(eps_low, eps_high, norm=learn.constant(), on=learn.CLAIMED)),
        models=roles(),
    )


@register(
    papers.HUNYUAN_TURBOS,
    family="policy",
    summary="GRPO with a token mean, mixed groups alone, and a KL that is bounded at every token.",
    when="A KL penalty is wanted, and single tokens with huge log-ratios make it diverge.",
)
def turbos_grpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.01,
    most: Annotated[float, Option("The largest KL of one token.", above=0, unlimited=True)] = 10.0,
    refills: Refills = 3,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """The GRPO of Hunyuan-TurboS (section 3.5.2): token-level loss, bounded KL, dynamic sampling, temperature 1.

    A_i = (r_i - mean r) / std r in groups whose replies do not all score the same
    L = mean over tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A) + beta min(k3, most) ]

    most = 10 is the paper's; n, eps and beta are not printed (beta is small for reasoning and larger for general
    tasks). Left out: the best-of-n loss on replies with a positive advantage, whose form is not given.
    """
    drawn, sampled = draw.prompts(task), rollout.sample(n, temperature=temperature)
    scored = score.scoring(task, reward_model)
    return method(
        draw=drawn,
        rollout=sampled,
        score=scored,
        select=select.refilled(select.mixed(), drawn, sampled, scored, refills),
        credit=chain(
            credit.group_relative(), credit.behaviour(), credit.ref(), credit.claim("pg", "policy", tag="mixed")
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.token_mean, on=learn.CLAIMED), learn.kl_bounded(coef=beta, most=most)
        ),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )
