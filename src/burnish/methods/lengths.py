"""How long to think: methods that lengthen or shorten replies."""

from __future__ import annotations

from collections.abc import Callable

from burnish.cast.roles import stage
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.credit.streams import behaviour
from burnish.draw.few import few
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_mean
from burnish.learn.terms import entropy_bonus, pg_clip, value_clip
from burnish.method import Method, Phase, method
from burnish.methods.actor_critic import ppo_cast, ppo_credit
from burnish.methods.table import register
from burnish.nouns import Clock
from burnish.parts import chain
from burnish.rollout.early_exit import early_exits
from burnish.rollout.sample import sample
from burnish.score.lengths import brevity_once_right, effort, halved_after_each_right
from burnish.score.verify import verify
from burnish.select.outcomes import partly_right, solvable
from burnish.tasks.source import Source

EXIT = "Time is limited, stop thinking and start answering.\n</think>\n\n"


@register(
    family="policy",
    catalogue=("s-grpo",),
    title="S-GRPO: Early Exit via Reinforcement Learning in Reasoning Models",
    arxiv="2505.07686",
    summary="One thought, answered early at several places: the sooner right, the better.",
    when="Replies are right but think too long, and most of the thought comes after the answer is known.",
    trial={"exits": 3},
)
def s_grpo(
    task: Source, *, exits: int = 7, eps: float = 0.2, phrase: str = EXIT, temperature: float = 1.0, updates: int = 1
) -> Method:
    """S-GRPO: a serial group. One reply is sampled whole; at `exits` random places of its thought an answer is asked for.

    In order, from the earliest exit to the whole reply: r_i = 1 / 2^(k - 1) for the k-th right answer, 0 for a wrong one
    A_i = r_i - mean r (no std)
    L = mean over replies of mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    No KL. A reply's tokens are the policy's: its share of the thought, and its answer; the phrase is not trained. The number
    of exits and eps are not printed. Departure: where a reply marks no end of its thought (</think>), all of it counts as thought.
    exits: early exits of each reply; the group is one larger. eps: the clip range.
    phrase: what ends a thought early. updates: passes over each batch.
    """
    return method(
        draw=prompts(task),
        rollout=early_exits(exits, phrase, temperature=temperature),
        score=chain(verify(task), halved_after_each_right()),
        credit=chain(group_relative(std=False, score="early"), behaviour(), member("pg", "policy")),
        learn=Learn(pg_clip(eps, norm=seq_mean), epochs=updates, temperature=temperature),
        cast=stage(),
    )


@register(
    family="policy",
    catalogue=("conciser",),
    title="Walk Before You Run! Concise LLM Reasoning via Reinforcement Learning",
    arxiv="2505.21178",
    summary="First learn to be right; then, where every reply is right, to be short.",
    when="You want accuracy first and brevity after, and never brevity at the price of accuracy.",
    trial={"n": 4},
)
def conciser(
    task: Source, *, n: int = 8, walk_share: float = 0.8, eps_low: float = 0.2, eps_high: float = 0.28, entropy: float = 0.001,
    temperature: float = 1.0, updates: int = 1,
) -> Method:  # fmt: skip
    """ConciseR: two stages of group-relative learning.

    walk (GRPO++)  A_i = (r_i - mean r) / (std r + 1e-6) on groups with right and wrong replies alone (dynamic sampling)
                   L = mean over tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A) - entropy (the policy's entropy)
    run (L-GRPO)   the same loss without the entropy bonus, with r_i = 1 - |y_i| / L_max where all replies to the prompt
                   are right, else r_i as before; L_max the longest allowed reply

    The stages and their parts are the paper's; its constants were not found, those of clip-higher are DAPO's. Departures: groups
    that dynamic sampling drops are not replaced by others, and "the second stage, using fewer steps" is the run's last fifth.
    n: replies sampled for each prompt. walk_share: share of the run's steps that belong to the first stage.
    eps_low: the clip range below. eps_high: the clip range above. entropy: coefficient of the entropy bonus.
    updates: passes over each batch.
    """
    clip = pg_clip(eps_low, eps_high)
    walk = Phase(
        name="walk",
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        select=partly_right(),
        credit=chain(group_relative(), behaviour(), member("pg", "policy", tag="mixed"), member("entropy", "policy", tag="mixed")),
        learn=Learn(clip, entropy_bonus(coef=entropy), epochs=updates, temperature=temperature),
        times=_until(walk_share),
    )  # fmt: skip
    run = Phase(
        name="run",
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=chain(verify(task), brevity_once_right()),
        credit=chain(group_relative(score="concise"), behaviour(), member("pg", "policy")),
        learn=Learn(clip, epochs=updates, temperature=temperature),
        times=_from(walk_share),
    )
    return Method(cast=stage(), phases=(walk, run))


def _until(share: float) -> Callable[[Clock], int]:
    """1 in the first share of the run, then 0."""
    return lambda clock: int(clock.step < share * clock.of)


def _from(share: float) -> Callable[[Clock], int]:
    """0 in the first share of the run, then 1."""
    return lambda clock: int(clock.step >= share * clock.of)


@register(
    family="policy",
    catalogue=("concise-two-phase",),
    title="Concise Reasoning via Reinforcement Learning",
    arxiv="2504.05185",
    summary="PPO, then a little more PPO on a few solvable problems, which shortens replies.",
    when="A trained reasoner should become shorter with little more training and without a length reward.",
    trial={"n": 4, "epochs": 1},
)
def concise_two_phase(
    task: Source, *, n: int = 8, first_share: float = 0.8, few_tasks: int = 8, eps: float = 0.2, value_eps: float = 0.2, value_coef: float = 0.5,
    kl: float = 0.0, lam: float = 0.95, epochs: int = 1, critic_lr: float = 1.0, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Two phases of the same PPO: for ability on all problems, then for brevity on a few that are sometimes solved.

    With lam < 1 the average loss of a token falls with length where the return is negative and rises where it is positive: problems
    that are never solved lengthen replies, problems that are solved shorten them. No length enters a reward.
    r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token;  A_t, R_t by GAE(1, lam), A whitened over the batch
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2

    The second phase draws the same few tasks again and again, and leaves out those that no reply solves. The paper's own
    constants were not found: the second phase is the run's last fifth, the rest is `ppo`'s.
    n: replies sampled for each prompt. first_share: share of the run's steps that belong to the first phase.
    few_tasks: problems of the second phase. eps: the policy's clip range. value_eps: the critic's clip range.
    value_coef: weight of the critic's loss. kl: KL penalty per token, inside the reward. lam: GAE's lambda, less than 1.
    epochs: passes over each batch. critic_lr: multiplies the learning rate for the critic.
    """
    learn = Learn(pg_clip(eps), value_clip(value_eps, coef=value_coef), epochs=epochs, temperature=temperature)
    ability = Phase(
        name="ability",
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=ppo_credit(kl, lam, temperature=temperature),
        learn=learn,
        times=_until(first_share),
    )
    brevity = Phase(
        name="brevity",
        draw=few(task, few_tasks),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        select=solvable(),
        credit=ppo_credit(kl, lam, temperature=temperature, tag="solvable"),
        learn=learn,
        times=_from(first_share),
    )
    return Method(cast=ppo_cast(critic_lr), phases=(ability, brevity))


@register(
    family="policy",
    catalogue=("rlsp",),
    title="On the Emergence of Thinking in LLMs I: Searching for the Right Intuition",
    arxiv="2502.06773",
    summary="PPO with a reward for being right and one, apart from it, for effort.",
    when="The model should search longer before it answers, and long efforts are to be paid a little.",
    trial={"n": 2},
)
def rlsp(
    task: Source, *, n: int = 1, price: float = 0.25, eps: float = 0.2, value_eps: float = 0.2, value_coef: float = 0.5, kl: float = 0.05,
    lam: float = 0.95, epochs: int = 1, critic_lr: float = 10.0, temperature: float = 0.7,
) -> Method:  # fmt: skip
    """RLSP: reinforcement learning via self-play; its first stage, SFT on demonstrations of reasoning, is `sft`.

    R = [right] - price L_max / |y|:   correctness, and an exploration reward that grows with the steps taken and saturates
    r_t = -kl log(pi_old/ref)(y_t), plus R at the last token;  A_t, R_t by GAE(1, lam), A whitened over the batch
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2

    The exploration reward, kl, lam, the temperature and the critic's tenfold rate are those of the authors' code, where it is
    1000 / |y| for replies of at most 4096 tokens: a quarter of L_max, the longest allowed reply. Left out: its -0.5 for replies
    without an answer, its running normalisation of rewards, its first steps without the actor, and the variant 0.8 R + 0.2 (a judge's score of creativity).
    n: replies sampled for each prompt. price: coefficient of the exploration reward. eps: the policy's clip range.
    value_eps: the critic's clip range. value_coef: weight of the critic's loss. kl: KL penalty per token, inside the reward.
    lam: GAE's lambda. epochs: passes over each batch. critic_lr: multiplies the learning rate for the critic.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=chain(verify(task), effort(price)),
        credit=ppo_credit(kl, lam, score="effort", temperature=temperature),
        learn=Learn(pg_clip(eps), value_clip(value_eps, coef=value_coef), epochs=epochs, temperature=temperature),
        cast=ppo_cast(critic_lr),
    )
