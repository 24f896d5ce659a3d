"""Methods with a value model that is trained beside the policy."""

from __future__ import annotations

import math
from collections.abc import Callable

from burnish.cast.roles import frozen, stage, trained
from burnish.credit.chi2 import chi2_scale
from burnish.credit.gae import gae, token_rewards, whiten
from burnish.credit.macro import macro_gae
from burnish.credit.members import member
from burnish.credit.returns import lambda_returns, monte_carlo, n_step
from burnish.credit.steps import dense_bonus
from burnish.credit.streams import behaviour, streams
from burnish.draw.tasks import demos, prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_mean, token_mean
from burnish.learn.terms import entropy_bonus, imitate, pg_clip, pg_reinforce, value_clip
from burnish.learn.terms.fit import value_fit
from burnish.learn.terms.regression import chi2_pull
from burnish.method import Method, Phase, method
from burnish.methods.actor_critic import anchors, claims, ppo_cast, ppo_credit
from burnish.methods.table import register
from burnish.nouns import Trace
from burnish.parts import chain
from burnish.rollout.given import given
from burnish.rollout.sample import sample
from burnish.schedules import after, before
from burnish.score.model import rm_role, scoring
from burnish.score.shape import Moments, clipped, normalised
from burnish.score.verify import verify
from burnish.tasks.source import Source


@register(
    family="policy",
    catalogue=("a2c",),
    title="Asynchronous Methods for Deep Reinforcement Learning",
    arxiv="1602.01783",
    summary="Policy gradient with a learned baseline and n-step returns, no ratio and no clip.",
    when="You want the classic actor-critic as a baseline, strictly on-policy.",
    trial={"n": 4},
)
def a2c(
    task: Source, *, n: int = 1, lookahead: int = 5, gamma: float = 0.99, entropy: float = 0.01, value_coef: float = 1.0,
    critic_lr: float = 1.0, temperature: float = 1.0, reward_model: str | None = None,
) -> Method:  # fmt: skip
    """Advantage actor-critic: A3C in its synchronous form, one update a batch.

    R_t = r_t + gamma r_{t+1} + ... up to the end of a stretch of `lookahead` tokens, + gamma^k V there (0 after the reply's end)
    A_t = R_t - V_t,   r = the score at the last token, 0 elsewhere
    L = mean over tokens of -A_t log pi(y_t) - entropy H_t + value_coef (V - R)^2 / 2

    The constants are the paper's for Atari. With a lookahead longer than the reply, A is the Monte-Carlo return minus V.
    n: replies sampled for each prompt. lookahead: tokens after which a return goes on with the value model (the paper's t_max).
    gamma: discount per token. entropy: coefficient of the entropy bonus. value_coef: weight of the critic's loss.
    critic_lr: multiplies the learning rate for the critic.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    Departures: the critic is a model of its own, where the paper shares weights; means over tokens, where it sums.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        credit=chain(
            streams("critic", "policy", value="value"), token_rewards(kl=None), n_step(lookahead, gamma=gamma),
            claims(), member("bonus", "policy"),
        ),
        learn=Learn(
            pg_reinforce(norm=token_mean), entropy_bonus(coef=entropy, name="bonus"), value_clip(math.inf, coef=value_coef),
            temperature=temperature,
        ),
        cast=stage(critic=trained(outputs=1, lr=critic_lr), **rm_role(reward_model)),
    )  # fmt: skip


@register(
    family="policy",
    catalogue=("vapo",),
    title="VAPO: Efficient and Reliable Reinforcement Learning for Advanced Reasoning Tasks",
    arxiv="2504.05118",
    summary="PPO for long reasoning: a value model trained first, lambda by length, and imitation of its own successes.",
    when="Long reasoning with a value model, when replies differ much in length and rewards come at the end.",
    trial={"n": 4, "value_warmup": 0},
)
def vapo(
    task: Source, *, n: int = 16, eps_low: float = 0.2, eps_high: float = 0.28, alpha: float = 0.05, positive: float = 0.1,
    value_warmup: int = 50, critic_lr: float = 2.0, epochs: int = 1, minibatches: int = 1, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Value-augmented PPO.

    First `value_warmup` steps: V -> R, R the Monte-Carlo return of the policy, which does not move
    A_t by GAE with lambda = max(0, 1 - 1/(alpha |y|)), whitened;   V -> R with lambda = 1;   gamma = 1, no KL
    L = mean over tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A)  +  mean over tokens of (V - R)^2 / 2
      + positive * mean over the tokens of correct replies of -log pi

    lambda makes the sum of its powers alpha |y|: long replies look further. Below |y| = 1/alpha the formula is negative; it is
    held at 0, where the paper is silent. A reply is correct where its score is above 0.5. The warm-up's length, the value loss
    and the whitening are not in the sources at hand: they are common practice.
    n: replies sampled for each prompt. eps_low: how far the ratio may fall. eps_high: how far it may rise.
    alpha: how lambda grows with the length. positive: weight of imitating correct replies.
    value_warmup: steps in which the value model alone is trained. critic_lr: multiplies the learning rate for the critic.
    epochs: passes over each batch. minibatches: updates in each pass.
    """
    learn_value = Phase(
        name="value",
        times=before(value_warmup),
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(token_rewards(kl=None), monte_carlo(), member("value", "policy")),
        learn=Learn(value_fit("returns")),
    )
    main = Phase(
        times=after(value_warmup),
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(
            behaviour(), streams("critic", "policy", value="value"), token_rewards(kl=None),
            gae(lam=length_adaptive(alpha), value_lam=1.0), whiten(),
            claims(), member("positive", "policy", where=_correct, needs=("score:reward",)),
        ),
        learn=Learn(
            pg_clip(eps_low, eps_high), value_clip(math.inf), imitate(coef=positive, name="positive"),
            epochs=epochs, minibatches=minibatches, temperature=temperature,
        ),
    )  # fmt: skip
    return Method(cast=stage(critic=trained(outputs=1, lr=critic_lr)), phases=(learn_value, main))


def length_adaptive(alpha: float) -> Callable[[int], float]:
    """VAPO's lambda of a reply's length: max(0, 1 - 1 / (alpha length))."""
    return lambda length: max(0.0, 1.0 - 1.0 / (alpha * length))


def _correct(trace: Trace) -> bool:
    return trace.scores["reward"] > 0.5


@register(
    family="policy",
    catalogue=("ma-rlhf",),
    title="MA-RLHF: Reinforcement Learning from Human Feedback with Macro Actions",
    arxiv="2410.02743",
    summary="PPO whose values and advantages belong to runs of tokens.",
    when="Token-level credit is too noisy for your replies, and words or phrases are better units.",
    trial={"n": 4, "length": 3},
)
def ma_rlhf(
    task: Source, *, n: int = 1, cut: str = "fixed", length: int = 5, repeats: int = 3, eps: float = 0.2, value_eps: float = 0.2,
    kl: float = 0.05, gamma: float = 1.0, lam: float = 0.95, limit: float = 2.5, epochs: int = 1, critic_lr: float = 1.0, temperature: float = 0.8,
    reward_model: str | None = None,
) -> Method:  # fmt: skip
    """PPO over macro actions tau: runs of tokens (the last token is a macro of its own).

    r_t = -kl log(pi_old/ref)(y_t), plus the score, cut to +-limit, at the last token
    r_tau = mean r_t,  V_tau = mean V_t over tau;   A_tau, R_tau by GAE over macros, shared by their tokens
    L = mean over tokens of -min(rho A, clip(rho) A) + mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2

    length = 1 is PPO (without whitening). This is the released code; the paper's equations sum the rewards of a macro where
    the code averages them, and clip one ratio per macro where the code clips every token's. Of the paper's four ways to cut
    three are here; the one by constituents needs a parser. With perplexity a macro begins where the next token surprises the
    reference more.
    n: replies sampled for each prompt. cut: fixed, random or perplexity. length: tokens in a macro action of a fixed cut.
    repeats: how often a random cut uses each of the lengths 1, 2, 3, 5 and 10. eps: the policy's clip range.
    value_eps: the critic's clip range. kl: KL penalty per token, inside the reward. gamma: discount per macro action.
    lam: GAE's lambda. limit: the largest score. epochs: passes over each batch.
    critic_lr: multiplies the learning rate for the critic.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=chain(scoring(task, reward_model), clipped(limit)),
        credit=chain(
            anchors(temperature), token_rewards(score="clipped", kl=kl), macro_gae(length, cut=cut, repeats=repeats, gamma=gamma, lam=lam), claims()
        ),
        learn=Learn(pg_clip(eps), value_clip(value_eps), epochs=epochs, temperature=temperature),
        cast=ppo_cast(critic_lr, reward_model),
    )  # fmt: skip


@register(
    family="policy",
    catalogue=("ppo-max",),
    title="Secrets of RLHF in Large Language Models Part I: PPO",
    arxiv="2307.04964",
    summary="PPO held stable: normalised and clipped scores, a KL penalty, a critic trained first.",
    when="RLHF with a reward model of uncertain scale, when plain PPO is unstable.",
    trial={"n": 4, "critic_warmup": 0},
)
def ppo_max(
    task: Source, *, n: int = 1, eps: float = 0.2, value_eps: float = 0.2, kl: float = 0.05, limit: float = 0.8, gamma: float = 1.0,
    lam: float = 0.95, critic_warmup: int = 50, critic_lr: float = 3.0, epochs: int = 1, temperature: float = 0.8,
    reward_model: str | None = None,
) -> Method:  # fmt: skip
    """PPO-max: the paper's choice among the tricks of RLHF.

    score~ = clip((score - mean) / std, +-limit), mean and std of all scores so far
    r_t = -kl log(pi_old/ref)(y_t), plus score~ at the last token;   A_t, R_t by GAE(gamma, lam)
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A) + mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2
    First `critic_warmup` steps: the critic alone, on the same returns.

    The critic starts from the reward model where one is given. Gradient clipping is the run's own.
    n: replies sampled for each prompt. eps: the policy's clip range. value_eps: the critic's clip range.
    kl: KL penalty per token, inside the reward; 0.05 is the paper's (the released script: 0.01).
    limit: the largest normalised score; 0.8 is that of the paper's comparisons. gamma: discount per token. lam: GAE's lambda.
    critic_warmup: steps in which the critic alone is trained; the paper prints no number.
    critic_lr: multiplies the learning rate for the critic. epochs: passes over each batch.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    Departure: no pre-training loss is mixed in; its weight is 0 in the released scripts.
    """
    moments = Moments("scores")
    rooms = {
        "draw": prompts(task),
        "rollout": sample(n, temperature=temperature),
        "score": chain(scoring(task, reward_model), normalised(moments, limit)),
    }
    rewards = chain(anchors(temperature), token_rewards(score="normal", kl=kl))
    learn_value = Phase(
        name="critic",
        times=before(critic_warmup),
        credit=chain(rewards, lambda_returns(gamma=gamma, lam=lam), member("value", "policy")),
        learn=Learn(value_clip(value_eps)),
        **rooms,  # type: ignore[arg-type]
    )
    main = Phase(
        times=after(critic_warmup),
        credit=chain(rewards, gae(gamma=gamma, lam=lam), claims()),
        learn=Learn(pg_clip(eps), value_clip(value_eps), epochs=epochs, temperature=temperature),
        **rooms,  # type: ignore[arg-type]
    )
    critic = trained(reward_model or "base", outputs=1, lr=critic_lr)
    return Method(cast=stage(ref=frozen("policy"), critic=critic, **rm_role(reward_model)), phases=(learn_value, main))


@register(
    family="policy",
    catalogue=("rto",),
    title="DPO Meets PPO: Reinforced Token Optimization for RLHF",
    arxiv="2404.18922",
    summary="PPO with a reward for every token, read off a policy that DPO trained.",
    when="You have preference pairs and want a reward for every token from them.",
    example="burnish train rto --dpo-policy runs/DIR/model",
    trial={"n": 4, "minibatches": 1, "dpo_policy": "tiny"},
)
def rto(
    task: Source, *, dpo_policy: str, n: int = 1, beta1: float = 0.05, dense_limit: float = 0.05, beta2: float = 0.01, beta3: float = 1.0,
    limit: float = 10.0, eps: float = 0.2, value_eps: float = 0.2, lam: float = 0.95, critic_lr: float = 18.0, epochs: int = 1,
    minibatches: int = 8, temperature: float = 1.0, reward_model: str | None = None,
) -> Method:  # fmt: skip
    """Reinforced token optimisation.

    r_t = clip(beta1 log(dpo/ref)(y_t), +-dense_limit) - beta2 log(pi_old/ref)(y_t), plus beta3 score~ at the last token
    score~ = clip((score - mean) / std, +-limit), mean and std of all scores so far
    A_t, R_t by GAE(1, lam), A whitened;   L = PPO's clipped surrogate + clipped value loss / 2, means over tokens

    The constants are the released code's.
    dpo_policy: the directory of a model that DPO trained from this run's model. n: replies sampled for each prompt.
    beta1: weight of the token reward. dense_limit: its largest value. beta2: KL penalty per token. beta3: weight of the score.
    limit: the largest normalised score. eps: the policy's clip range. value_eps: the critic's clip range. lam: GAE's lambda.
    critic_lr: multiplies the learning rate for the critic. epochs: passes over each batch. minibatches: updates in each pass.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    Departure: scores are normalised by running moments, where the code uses moments stored with its reward model.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=chain(scoring(task, reward_model), normalised(Moments("scores"), limit, scale=beta3)),
        credit=chain(
            streams("dpo", logp="dpo", temperature=temperature),
            ppo_credit(beta2, lam, score="normal", temperature=temperature, dense=(dense_bonus(beta1, dense_limit, stream="dpo"),)),
        ),
        learn=Learn(pg_clip(eps), value_clip(value_eps), epochs=epochs, minibatches=minibatches, temperature=temperature),
        cast=ppo_cast(critic_lr, reward_model, dpo=frozen(dpo_policy)),
    )  # fmt: skip


@register(
    family="hybrid",
    catalogue=("reft",),
    title="ReFT: Reasoning with Reinforced Fine-Tuning",
    arxiv="2401.08967",
    summary="A warm-up on demonstrations, then PPO on the same questions.",
    when="You have solutions and a verifier, and the model cannot solve enough to start RL at once.",
    trial={"n": 4, "warmup": 1, "epochs": 1},
)
def reft(
    task: Source, *, n: int = 1, warmup: int = 100, eps: float = 0.2, value_eps: float = 0.2, value_coef: float = 5.0, kl: float = 0.05,
    gamma: float = 1.0, lam: float = 0.95, epochs: int = 2, critic_lr: float = 1.0, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Reinforced fine-tuning.

    Warm-up: L = mean over demonstrated tokens of -log pi
    Then r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token, ref the policy at the end of the warm-up
    A_t, R_t by GAE(gamma, lam), A whitened over the batch
    L = mean over replies of mean over tokens of -min(rho A, clip(rho) A) + value_coef max((V - R)^2, (V_clip - R)^2) / 2

    The reference learns the same demonstrations beside the policy, so that it is the policy of the warm-up's end.
    PPO begins in the step that ends the warm-up.
    n: replies sampled for each prompt. warmup: steps of the warm-up, at least 1; the paper's is 2 epochs.
    eps: the policy's clip range. value_eps: the critic's clip range. value_coef: weight of the critic's loss.
    kl: KL penalty per token; 0.05 is the paper's for solutions in words, 0.01 for programs. gamma: discount per token.
    lam: GAE's lambda. epochs: passes over each batch. critic_lr: multiplies the learning rate for the critic.
    Departures: scores are the task's own, where the paper gives 1 for a right answer, 0.1 for a wrong one that can be read and
    0 for none; the critic is a model of its own, where the paper puts a head on the policy.
    """
    if warmup < 1:
        raise ValueError(f"warmup is {warmup}; ReFT warms up for at least 1 step (ppo does without)")
    imitation = Phase(
        name="warmup",
        times=before(warmup),
        draw=demos(task),
        rollout=given("demo"),
        credit=chain(member("sft", "demo"), member("sft_ref", "demo")),
        learn=Learn(imitate(), imitate(trainee="ref", name="sft_ref")),
    )
    main = Phase(
        times=after(warmup - 1),
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=ppo_credit(kl, lam, gamma=gamma, temperature=temperature),
        learn=Learn(
            pg_clip(eps, norm=seq_mean), value_clip(value_eps, coef=value_coef, norm=seq_mean), epochs=epochs, temperature=temperature
        ),
    )  # fmt: skip
    return Method(cast=stage(ref=trained(), critic=trained(outputs=1, lr=critic_lr)), phases=(imitation, main))


@register(
    family="policy",
    catalogue=("chi2-regularisation",),
    title="Correlated Proxies: A New Definition and Improved Mitigation for Reward Hacking",
    arxiv="2403.03185",
    summary="PPO held to its reference by the square root of a chi-squared divergence, against reward hacking.",
    when="Your reward is a proxy that the policy learns to exploit.",
    trial={"n": 4, "epochs": 1},
)
def chi2_ppo(
    task: Source, *, n: int = 1, chi2: float = 0.0008, eps: float = 0.4, value_eps: float = 0.2, value_coef: float = 0.5, lam: float = 0.95,
    epochs: int = 4, minibatches: int = 1, critic_lr: float = 1.0, temperature: float = 1.0, reward_model: str | None = None,
) -> Method:  # fmt: skip
    """PPO with sqrt-chi2 regularisation, in its form for language models.

    L = PPO's (GAE(1, lam), A whitened, no KL in the reward) + chi2 sqrt( mean over replies of (e^L - 1) + (e^-L - 1) )
    L = log pi(y|x) - log ref(y|x) of the whole reply; e^x goes on as its tangent beyond 10

    The second bracket is a control variate. This is the authors' code, whose gradient (e^L - e^-L) grad log pi is not all of
    the gradient of chi2.
    n: replies sampled for each prompt. chi2: weight of the penalty; 0.0008 is the authors' example. eps: the policy's clip range.
    value_eps: the critic's clip range. value_coef: weight of the critic's loss. lam: GAE's lambda.
    epochs: passes over each batch. minibatches: updates in each pass. critic_lr: multiplies the learning rate for the critic.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    Departure: the mean under the root is that of the whole batch before its updates, held at 1e-4 or more; the code takes it
    anew over each minibatch, and has no gradient below 1e-4.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        credit=chain(
            anchors(temperature), chi2_scale(), token_rewards(kl=None), gae(lam=lam), whiten(), claims(), member("chi2", "policy")
        ),
        learn=Learn(
            pg_clip(eps), value_clip(value_eps, coef=value_coef), chi2_pull(coef=chi2),
            epochs=epochs, minibatches=minibatches, temperature=temperature,
        ),
        cast=ppo_cast(critic_lr, reward_model),
    )  # fmt: skip
