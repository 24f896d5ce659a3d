"""How long to think: methods that lengthen or shorten replies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Clock, Method, Option, Phase, chain, method, roles
from burnish.methods import opt, papers, register
from burnish.methods.actor_critic import ppo_credit, ppo_models

EXIT = "Time is limited, stop thinking and start answering.\n</think>\n\n"


@register(
    papers.S_GRPO,
    family="policy",
    summary="One thought, answered early at several places: the sooner right, the better.",
    when="Replies are right but think too long, and most of the thought comes after the answer is known.",
    trial={"exits": 3},
)
def s_grpo(
    task: draw.Source,
    *,
    exits: Annotated[int, Option("Early exits of each reply; the group is one larger.", at_least=1)] = 7,
    eps: opt.ClipRange = 0.2,
    phrase: Annotated[str, Option("What ends a thought early.")] = EXIT,
    temperature: opt.Temperature = 1.0,
    updates: opt.Updates = 1,
) -> Method:
    """S-GRPO: a serial group. One reply is sampled whole; at `exits` random places of it an answer is asked for.

    From the earliest exit to the whole reply: r_i = 1 / 2^(k - 1) for the k-th right answer, 0 for a wrong one
    A_i = r_i - mean r (no std)
    L = mean over replies of mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    No KL. A reply's tokens are the policy's: its share of the thought, and its answer; the phrase is not trained.
    The number of exits and eps are not printed. Departure: where a reply marks no end of its thought (</think>),
    all of it counts as thought.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.early_exits(exits, phrase, temperature=temperature),
        score=chain(score.verify(task), score.halved_after_each_right()),
        credit=chain(credit.group_relative(std=False, score="early"), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean), updates=updates),
        models=roles(),
    )


@register(
    papers.CONCISER,
    family="policy",
    summary="First learn to be right; then, where every reply is right, to be short.",
    when="You want accuracy first and brevity after, and never brevity at the price of accuracy.",
)
def conciser(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    walk_share: Annotated[float, Option("Share of the run's steps in the first stage.", at_least=0, at_most=1)] = 0.8,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    entropy: opt.EntropyCoef = 0.001,
    temperature: opt.Temperature = 1.0,
    updates: opt.Updates = 1,
) -> Method:
    """ConciseR: two stages of group-relative learning.

    walk (GRPO++)  A_i = (r_i - mean r) / (std r + 1e-6) on groups with right and wrong replies alone (dynamic sampling)
                   L = mean over tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A) - entropy H(pi)
    run (L-GRPO)   the same loss without the entropy bonus, with r_i = 1 - |y_i| / L_max where all replies to the prompt
                   are right, else r_i as before; L_max the longest allowed reply

    The stages and their parts are the paper's; its constants were not found, those of clip-higher are DAPO's.
    Departures: groups that dynamic sampling drops are not replaced by others, and "the second stage, using fewer
    steps" is the run's last fifth.
    """
    walk = Phase(
        name="walk",
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        select=select.partly_right(),
        credit=chain(
            credit.group_relative(),
            credit.behaviour(),
            credit.claim("pg", "policy", tag="mixed"),
            credit.claim("entropy", "policy", tag="mixed"),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps_low, eps_high, on=learn.CLAIMED),
            learn.entropy_bonus(coef=entropy, on=learn.CLAIMED),
            updates=updates,
        ),
        times=_until(walk_share),
    )
    run = Phase(
        name="run",
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=chain(score.verify(task), score.brevity_once_right()),
        credit=chain(credit.group_relative(score="concise"), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps_low, eps_high), updates=updates),
        times=_from(walk_share),
    )
    return Method(models=roles(), phases=(walk, run))


def _until(share: float) -> Callable[[Clock], int]:
    """1 in the first share of the run, then 0."""
    return lambda clock: int(clock.step < share * clock.of)


def _from(share: float) -> Callable[[Clock], int]:
    """0 in the first share of the run, then 1."""
    return lambda clock: int(clock.step >= share * clock.of)


@register(
    papers.CONCISE_TWO_PHASE,
    family="policy",
    summary="PPO, then a little more PPO on a few solvable problems, which shortens replies.",
    when="A trained reasoner should become shorter with little more training and without a length reward.",
)
def concise_two_phase(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    first_share: Annotated[float, Option("Share of the run's steps in the first phase.", at_least=0, at_most=1)] = 0.8,
    few_tasks: Annotated[int, Option("Problems of the second phase.", at_least=1)] = 8,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.0,
    lam: Annotated[float, Option("GAE's lambda.", at_least=0, below=1)] = 0.95,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Two phases of the same PPO: for ability on all problems, then for brevity on a few that are sometimes solved.

    With lam < 1 the average loss of a token falls with length where the return is negative and rises where it is
    positive: problems that are never solved lengthen replies, solved ones shorten them. No length enters a reward.
    r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token;  A_t, R_t by GAE(1, lam), A whitened
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2

    The second phase draws the same few tasks again and again, and leaves out those that no reply solves. The
    paper's own constants were not found: the second phase is the run's last fifth, the rest is `ppo`'s.
    """
    ability = Phase(
        name="ability",
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        credit=ppo_credit(kl, lam),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
        times=_until(first_share),
    )
    brevity = Phase(
        name="brevity",
        draw=draw.few(task, few_tasks),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        select=select.solvable(),
        credit=chain(
            ppo_credit(kl, lam),
            credit.claim("pg", "policy", tag="solvable"),
            credit.claim("value", "policy", tag="solvable"),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, on=learn.CLAIMED),
            learn.value_clip(value_eps, coef=value_coef, on=learn.CLAIMED),
            updates=updates,
        ),
        times=_from(first_share),
    )
    return Method(models=ppo_models(critic_lr), phases=(ability, brevity))


@register(
    papers.RLSP,
    family="policy",
    summary="PPO with a reward for being right and one, apart from it, for effort.",
    when="The model should search longer before it answers, and long efforts are to be paid a little.",
    trial={"n": 2},
)
def rlsp(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    price: Annotated[float, Option("Coefficient of the exploration reward.", at_least=0)] = 0.25,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 10.0,
    temperature: opt.Temperature = 0.7,
) -> Method:
    """RLSP: reinforcement learning via self-play; its first stage, SFT on demonstrations of reasoning, is `sft`.

    R = [right] - price L_max / |y|:   correctness, and an exploration reward that grows with length and saturates
    r_t = -kl log(pi_old/ref)(y_t), plus R at the last token;  A_t, R_t by GAE(1, lam), A whitened over the batch
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2

    The exploration reward, kl, lam, the temperature and the critic's tenfold rate are those of the authors' code,
    where it is 1000 / |y| for replies of at most 4096 tokens: a quarter of L_max, the longest allowed reply. Left
    out: its -0.5 for replies without an answer, its running normalisation of rewards, its first steps without the
    actor, and the variant 0.8 R + 0.2 (a judge's score of creativity).
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=chain(score.verify(task), score.effort(price)),
        credit=ppo_credit(kl, lam, score="effort"),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
        models=ppo_models(critic_lr),
    )
