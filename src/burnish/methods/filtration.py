"""Which replies a policy gradient learns from: filtered by the rank of their reward, or replayed."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.schedules import after, before
from burnish.method import Method, Option, Phase, chain, method, roles, trained
from burnish.methods import opt, papers, register
from burnish.methods.actor_critic import ppo_credit, ppo_models


@register(
    papers.PF_PPO,
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


@register(
    papers.RLEP,
    family="policy",
    summary="A first run collects right replies; a second starts over with some of them in every group.",
    when="RL spends most of its time on finding solutions that an earlier run has found already.",
    trial={"n": 4, "replay": 2, "collect_steps": 1, "minibatches": 1},
)
def rlep(
    task: draw.Source,
    *,
    n: opt.GroupSize = 16,
    replay: Annotated[int, Option("Stored right replies that join each group.", at_least=0)] = 2,
    collect_steps: Annotated[
        int, Option("Steps of the run that collects; the second begins in the last.", at_least=1)
    ] = 100,
    questions: Annotated[int, Option("Different questions, where the task has no end.", at_least=1)] = 256,
    capacity: Annotated[int, Option("Groups of right replies that are stored.", at_least=1)] = 100_000,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    overlong: opt.Overlong = 0.2,
    minibatches: opt.Minibatches = 8,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Reinforcement learning with experience replay.

    First  a copy of the starting model ("collector") is trained by L on its own n replies; right ones are stored
    Then   the policy, from the same start, learns from n fresh replies and `replay` stored ones of each question
    A_i = (R_i - mean R) / std R over all n + replay;  R = 2 score - 1 + the punishment of overlong replies (as in DAPO)
    L = mean over all tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A),   rho = pi / pi_old, also for stored
    replies, with pi_old computed by the policy before its update

    replay = 0 is the baseline. No group is filtered. Stored replies are different ones, drawn at random; a question
    with fewer has fewer. Both runs are phases of one here: the collector is a model of its own. n is ours.
    """
    pool = select.Store("pool", capacity)
    drawn = draw.few(task, questions) if task.size("train") is None else draw.prompts(task)
    collect = Phase(
        name="collect",
        times=before(collect_steps),
        draw=drawn,
        rollout=rollout.sample(n, temperature=temperature, who="collector"),
        score=chain(score.verify(task, author="collector"), score.punish_overlong(overlong, author="collector")),
        select=select.remember_right(pool, author="collector"),
        credit=chain(credit.group_relative(score="shaped"), credit.behaviour("collector")),
        learn=learn.Learn(
            learn.pg_clip(eps_low, eps_high, trainee="collector", on="collector", name="collect"),
            minibatches=minibatches,
        ),
    )
    both = ("policy", "replay")
    main = Phase(
        times=after(collect_steps - 1),
        draw=draw.with_replies(drawn, pool, replay),
        rollout=rollout.join(rollout.replayed(), rollout.sample(n, temperature=temperature)),
        score=chain(score.verify(task), score.punish_overlong(overlong, author=both)),
        credit=chain(credit.group_relative(score="shaped"), credit.old()),
        learn=learn.Learn(learn.pg_clip(eps_low, eps_high, on=both), minibatches=minibatches),
    )
    return Method(models=roles(collector=trained()), phases=(collect, main))
