"""Methods with a value model that is trained beside the policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

from burnish import credit, draw, learn, rollout, score
from burnish.core.schedules import after, before
from burnish.method import Method, Option, Phase, Trace, chain, frozen, method, roles, trained
from burnish.methods import opt, papers, register
from burnish.methods.actor_critic import anchors, ppo_credit, ppo_models


@register(
    papers.VAPO,
    family="policy",
    summary="PPO for long reasoning: a value model trained first, lambda by length, imitation of its own successes.",
    when="Long reasoning with a value model, when replies differ much in length and rewards come at the end.",
    trial={"n": 4, "value_warmup": 0},
)
def vapo(
    task: draw.Source,
    *,
    n: opt.Replies = 16,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    alpha: Annotated[float, Option("How lambda grows with the length.", above=0, unlimited=True)] = 0.05,
    positive: Annotated[float, Option("Weight of imitating correct replies.", at_least=0)] = 0.1,
    value_warmup: Annotated[int, Option("Steps in which the value model alone is trained.", at_least=0)] = 50,
    critic_lr: opt.CriticLR = 2.0,
    updates: opt.Updates = 1,
    minibatches: opt.Minibatches = 1,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Value-augmented PPO.

    First `value_warmup` steps: V -> R, R the Monte-Carlo return of the policy, which does not move
    A_t by GAE with lambda = max(0, 1 - 1/(alpha |y|)), whitened;   V -> R with lambda = 1;   gamma = 1, no KL
    L = mean over tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A)  +  mean over tokens of (V - R)^2 / 2
      + positive * mean over the tokens of correct replies of -log pi

    lambda makes the sum of its powers alpha |y|: long replies look further. Below |y| = 1/alpha the formula is
    negative; it is held at 0, where the paper is silent. A reply is correct where its score is above 0.5. The
    warm-up's length, the value loss and the whitening are not in the sources at hand: they are common practice.
    """
    learn_value = Phase(
        name="value",
        times=before(value_warmup),
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        credit=chain(credit.token_rewards(kl=None), credit.monte_carlo()),
        learn=learn.Learn(learn.value_fit("returns")),
    )
    main = Phase(
        times=after(value_warmup),
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        credit=chain(
            credit.behaviour(),
            credit.streams("critic", "policy", value="value"),
            credit.token_rewards(kl=None),
            credit.gae(lam=length_adaptive(alpha), value_lam=1.0),
            credit.whiten(),
            credit.claim("positive", "policy", where=_correct, needs=("score:reward",)),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps_low, eps_high),
            learn.value_clip(math.inf),
            learn.imitate(coef=positive, on=learn.CLAIMED, name="positive"),
            updates=updates,
            minibatches=minibatches,
        ),
    )
    return Method(models=roles(critic=trained(outputs=1, lr=critic_lr)), phases=(learn_value, main))


def length_adaptive(alpha: float) -> Callable[[int], float]:
    """VAPO's lambda of a reply's length: max(0, 1 - 1 / (alpha length))."""
    return lambda length: max(0.0, 1.0 - 1.0 / (alpha * length))


def _correct(trace: Trace) -> bool:
    return trace.scores["reward"] > 0.5


@register(
    papers.MA_RLHF,
    family="policy",
    summary="PPO whose values and advantages belong to runs of tokens.",
    when="Token-level credit is too noisy for your replies, and words or phrases are better units.",
    trial={"n": 4, "length": 3},
)
def ma_rlhf(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    cut: Annotated[
        str, Option("How a reply is cut into macro actions.", choices=("fixed", "random", "perplexity"))
    ] = "fixed",
    length: Annotated[int, Option("Tokens in a macro action of a fixed cut.", at_least=1)] = 5,
    repeats: Annotated[int, Option("How often a random cut uses each of 1, 2, 3, 5 and 10.", at_least=1)] = 3,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    kl: opt.KLPenalty = 0.05,
    gamma: Annotated[float, Option("Discount per macro action.", at_least=0, at_most=1)] = 1.0,
    lam: opt.Lam = 0.95,
    limit: Annotated[float, Option("The largest score.", above=0)] = 2.5,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 0.8,
    reward_model: opt.RewardModel = None,
) -> Method:
    """PPO over macro actions tau: runs of tokens (the last token is a macro of its own).

    r_t = -kl log(pi_old/ref)(y_t), plus the score, cut to +-limit, at the last token
    r_tau = mean r_t,  V_tau = mean V_t over tau;   A_tau, R_tau by GAE over macros, shared by their tokens
    L = mean over tokens of -min(rho A, clip(rho) A) + mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2

    length = 1 is PPO (without whitening). This is the released code; the paper's equations sum the rewards of a
    macro where the code averages them, and clip one ratio per macro where the code clips every token's. Of the
    paper's four ways to cut three are here; the one by constituents needs a parser. With perplexity a macro begins
    where the next token surprises the reference more.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=chain(score.scoring(task, reward_model), score.clipped(limit)),
        credit=chain(
            anchors(),
            credit.token_rewards(score="clipped", kl=kl),
            credit.macro_gae(length, cut=cut, repeats=repeats, gamma=gamma, lam=lam),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps), updates=updates),
        models=ppo_models(critic_lr, reward_model),
    )


@register(
    papers.PPO_MAX,
    family="policy",
    summary="PPO held stable: normalised and clipped scores, a KL penalty, a critic trained first.",
    when="RLHF with a reward model of uncertain scale, when plain PPO is unstable.",
    trial={"n": 4, "critic_warmup": 0},
)
def ppo_max(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    kl: opt.KLPenalty = 0.05,
    limit: Annotated[float, Option("The largest normalised score.", above=0)] = 0.8,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    critic_warmup: Annotated[int, Option("Steps in which the critic alone is trained.", at_least=0)] = 50,
    critic_lr: opt.CriticLR = 3.0,
    updates: opt.Updates = 1,
    temperature: opt.Temperature = 0.8,
    reward_model: opt.RewardModel = None,
) -> Method:
    """PPO-max: the paper's choice among the tricks of RLHF.

    score~ = clip((score - mean) / std, +-limit), mean and std of all scores so far
    r_t = -kl log(pi_old/ref)(y_t), plus score~ at the last token;   A_t, R_t by GAE(gamma, lam)
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2
    First `critic_warmup` steps: the critic alone, on the same returns.

    The critic starts from the reward model where one is given. Gradient clipping is the run's own. Departure: no
    pre-training loss is mixed in; its weight is 0 in the released scripts. kl = 0.05 is the paper's (the released
    script: 0.01), limit = 0.8 that of its comparisons; it prints no number for the critic's warm-up.
    """
    moments = score.Moments("scores")
    stages: dict[str, Any] = {
        "draw": draw.prompts(task),
        "rollout": rollout.sample(n, temperature=temperature),
        "score": chain(score.scoring(task, reward_model), score.normalised(moments, limit)),
    }
    rewards = chain(anchors(), credit.token_rewards(score="normal", kl=kl))
    learn_value = Phase(
        name="critic",
        times=before(critic_warmup),
        credit=chain(rewards, credit.lambda_returns(gamma=gamma, lam=lam)),
        learn=learn.Learn(learn.value_clip(value_eps)),
        **stages,
    )
    main = Phase(
        times=after(critic_warmup),
        credit=chain(rewards, credit.gae(gamma=gamma, lam=lam)),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps), updates=updates),
        **stages,
    )
    critic = trained(reward_model or "base", outputs=1, lr=critic_lr)
    return Method(
        models=roles(ref=frozen("policy"), critic=critic, **score.rm_role(reward_model)), phases=(learn_value, main)
    )


@register(
    papers.RTO,
    family="policy",
    summary="PPO with a reward for every token, read off a policy that DPO trained.",
    when="You have preference pairs and want a reward for every token from them.",
    trial={"n": 4, "minibatches": 1, "dpo_policy": "tiny"},
)
def rto(
    task: draw.Source,
    *,
    dpo_policy: Annotated[str, Option("The directory of a model that DPO trained from this run's model.")],
    n: opt.Replies = 1,
    beta1: Annotated[float, Option("Weight of the token reward.", at_least=0)] = 0.05,
    dense_limit: Annotated[float, Option("The largest token reward.", at_least=0)] = 0.05,
    beta2: Annotated[float, Option("KL penalty per token.", at_least=0)] = 0.01,
    beta3: Annotated[float, Option("Weight of the score.", at_least=0)] = 1.0,
    limit: Annotated[float, Option("The largest normalised score.", above=0)] = 10.0,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    lam: opt.Lam = 0.95,
    critic_lr: opt.CriticLR = 18.0,
    updates: opt.Updates = 1,
    minibatches: opt.Minibatches = 8,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Reinforced token optimisation.

    r_t = clip(beta1 log(dpo/ref)(y_t), +-dense_limit) - beta2 log(pi_old/ref)(y_t), plus beta3 score~ at the last token
    score~ = clip((score - mean) / std, +-limit), mean and std of all scores so far
    A_t, R_t by GAE(1, lam), A whitened
    L = mean over replies of mean over tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + max((V - R)^2, (V_clip - R)^2) / 2 ]

    The constants and the means are the released code's, for updates of 128 replies. On `tiny`, with a few replies
    an update, they learn less than a mean over all tokens (CHANGELOG has the runs; the cause is not known). Departure:
    scores are normalised by running moments, where the code uses moments stored with its reward model.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=chain(score.scoring(task, reward_model), score.normalised(score.Moments("scores"), limit, scale=beta3)),
        credit=chain(
            credit.streams("dpo", logp="dpo"),
            ppo_credit(beta2, lam, score="normal", dense=(credit.dense_bonus(beta1, dense_limit, stream="dpo"),)),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean),
            learn.value_clip(value_eps, norm=learn.seq_mean),
            updates=updates,
            minibatches=minibatches,
        ),
        models=ppo_models(critic_lr, reward_model, dpo=frozen(dpo_policy)),
    )


@register(
    papers.REFT,
    family="hybrid",
    summary="A warm-up on demonstrations, then PPO on the same questions.",
    when="You have solutions and a verifier, and the model cannot solve enough to start RL at once.",
    trial={"n": 4, "warmup": 1, "updates": 1},
)
def reft(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    warmup: Annotated[int, Option("Steps of the warm-up.", at_least=1)] = 100,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 5.0,
    kl: opt.KLPenalty = 0.05,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 2,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Reinforced fine-tuning.

    Warm-up: L = mean over demonstrated tokens of -log pi
    Then r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token, ref the policy at the end of the warm-up
    A_t, R_t by GAE(gamma, lam), A whitened over the batch
    L = mean over replies of mean over tokens of -min(rho A, clip(rho) A)
      + value_coef max((V - R)^2, (V_clip - R)^2) / 2

    The reference learns the same demonstrations beside the policy, so that it is the policy of the warm-up's end.
    PPO begins in the step that ends the warm-up. Departures: scores are the task's own, where the paper gives 1 for
    a right answer, 0.1 for a wrong one that can be read and 0 for none; the critic is a model of its own, where the
    paper puts a head on the policy. The paper's warm-up is 2 epochs; kl = 0.05 is its value for solutions in words,
    0.01 for programs.
    """
    imitation = Phase(
        name="warmup",
        times=before(warmup),
        draw=draw.demos(task),
        rollout=rollout.given("demo"),
        learn=learn.Learn(learn.imitate(on="demo"), learn.imitate(trainee="ref", on="demo", name="sft_ref")),
    )
    main = Phase(
        times=after(warmup - 1),
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        credit=ppo_credit(kl, lam, gamma=gamma),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean),
            learn.value_clip(value_eps, coef=value_coef, norm=learn.seq_mean),
            updates=updates,
        ),
    )
    return Method(models=roles(ref=trained(), critic=trained(outputs=1, lr=critic_lr)), phases=(imitation, main))


@register(
    papers.CHI2_REGULARISATION,
    family="policy",
    summary="PPO held to its reference by the square root of a chi-squared divergence, against reward hacking.",
    when="Your reward is a proxy that the policy learns to exploit.",
)
def chi2_ppo(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    chi2: Annotated[float, Option("Weight of the penalty.", at_least=0)] = 0.0008,
    eps: opt.ClipRange = 0.4,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    minibatches: opt.Minibatches = 1,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """PPO with sqrt-chi2 regularisation, in its form for language models.

    L = PPO's (GAE(1, lam), A whitened, no KL in the reward) + chi2 sqrt( mean over replies of (e^L - 1) + (e^-L - 1) )
    L = log pi(y|x) - log ref(y|x) of the whole reply; e^x goes on as its tangent beyond 10

    The second bracket is a control variate. This is the authors' code, whose gradient (e^L - e^-L) grad log pi is
    not all of the gradient of chi2. Departure: the mean under the root is that of the whole batch before its
    updates, held at 1e-4 or more; the code takes it anew over each minibatch, and has no gradient below 1e-4. chi2
    = 0.0008 is the authors' example.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, reward_model),
        credit=chain(
            anchors(), credit.chi2_scale(), credit.token_rewards(kl=None), credit.gae(lam=lam), credit.whiten()
        ),
        learn=learn.Learn(
            learn.pg_clip(eps),
            learn.value_clip(value_eps, coef=value_coef),
            learn.chi2_pull(coef=chi2),
            updates=updates,
            minibatches=minibatches,
        ),
        models=ppo_models(critic_lr, reward_model),
    )
