"""Actor-critic methods whose replies start in the middle of a demonstration or of an earlier reply."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import opt, papers, register
from burnish.methods.actor_critic import ppo_credit, ppo_models

_Stages = Annotated[int, Option("Pieces of a demonstration.", at_least=1)]
_Partial = Annotated[float, Option("Reward of a wrong answer.", at_least=0, at_most=1)]


@register(
    papers.DR_PO,
    family="hybrid",
    summary="PPO whose replies start at random places of demonstrations.",
    when="Demonstrations are at hand for RLHF: starting in the middle of them makes good states easy to reach.",
    trial={"n": 2, "updates": 1},
)
def dr_po(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    chance: Annotated[float, Option("How often a reply starts inside a demonstration.", at_least=0, at_most=1)] = 1.0,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.1,
    kl: opt.KLPenalty = 0.05,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """DR-PO: reset to a state of a demonstration, let the policy finish, PPO on what it wrote.

    with probability chance: keep the first t tokens of y*, t uniform in 1 .. |y*| - 1;  else start from the prompt
    r_t = -kl log(pi/ref)(y_t), plus the score at the last token, divided by their std
    A_t, R_t by GAE(gamma, lam), A whitened
    L = mean over generated tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef mean over all reply tokens of max((V - R)^2, (V_clip - R)^2) / 2

    As in the released code, rewards, GAE, whitening and the critic's loss run over the kept tokens too; only the
    policy's loss leaves them out. The paper resets into unlabelled demonstrations and always resets (chance = 1);
    chance = 0 is PPO. value_coef and updates are those usual for PPO on summaries, not checked against the paper.
    """
    both = ("policy", "demo")
    return method(
        draw=draw.demos(task),
        rollout=rollout.reset(n, rollout.anywhere(chance), temperature=temperature),
        score=score.scoring(task, reward_model),
        credit=chain(
            credit.old(logp_temperature=temperature),
            credit.ref(logp_temperature=temperature),
            credit.streams("critic", value="value"),
            credit.token_rewards(kl=kl, author=both),
            credit.whiten("reward", author=both, centre=False),
            credit.gae(gamma=gamma, lam=lam, author=both),
            credit.whiten(author=both),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps),
            learn.value_clip(value_eps, coef=value_coef, on=both),
            updates=updates,
            logp_temperature=temperature,
        ),
        models=ppo_models(critic_lr, reward_model),
    )


@register(
    papers.R3,
    family="hybrid",
    summary="PPO from start states all along the demonstrations, mixed: a reverse curriculum.",
    when="Rewards come only at the end and are too rare from the prompt, but demonstrations lead there.",
    trial={"n": 2, "updates": 1},
)
def r3(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    stages: _Stages = 6,
    partial: _Partial = 0.2,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 5.0,
    kl: opt.KLPenalty = 0.05,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 2,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """R3: a demonstration is cut into `stages` pieces; a reply starts after the first k, k uniform in 0 .. stages - 1.

    score = 1 where right, `partial` where wrong but an answer is stated, else 0
    r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token;  A_t, R_t by GAE(1, lam), A whitened
    L = mean over replies of mean over generated tokens of [ -min(rho A, clip(rho) A)
      + value_coef max((V - R)^2, (V_clip - R)^2) / 2 ]

    The constants are those of the released mathematics runs; `partial` is the released code's. Pieces are of equal
    length in tokens, their ends moved back to the end of a line where one lies in the piece; their number is a
    choice of ours.
    """
    cut = rollout.any_stage(stages)
    return _r3(task, n, cut, partial, eps, value_eps, value_coef, kl, lam, updates, critic_lr, temperature)


@register(
    papers.R3,
    family="hybrid",
    summary="PPO whose start states slide from the end of the demonstrations to the prompt.",
    when="As `r3`, when stages should follow each other instead of being mixed.",
    trial={"n": 2, "updates": 1},
)
def r3_staged(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    stages: _Stages = 6,
    partial: _Partial = 0.2,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 5.0,
    kl: opt.KLPenalty = 0.05,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 2,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Staged R3: as `r3`, but all replies start after the first k pieces, k = stages - 1, ..., 0 over the run.

    The paper's first form, which it improves on by mixing the stages. Each stage has the same number of steps.
    """
    cut = rollout.sliding_stage(stages)
    return _r3(task, n, cut, partial, eps, value_eps, value_coef, kl, lam, updates, critic_lr, temperature)


def _r3(
    task: draw.Source,
    n: int,
    cut: rollout.Cut,
    partial: float,
    eps: float,
    value_eps: float,
    value_coef: float,
    kl: float,
    lam: float,
    updates: int,
    critic_lr: float,
    temperature: float,
) -> Method:
    return method(
        draw=draw.demos(task),
        rollout=rollout.reset(n, cut, temperature=temperature),
        score=chain(score.verify(task), score.partial_for_answering(partial)),
        credit=ppo_credit(kl, lam, score="shaped"),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean),
            learn.value_clip(value_eps, coef=value_coef, norm=learn.seq_mean),
            updates=updates,
        ),
        models=ppo_models(critic_lr),
    )


@register(
    papers.SATORI,
    family="hybrid",
    summary="PPO that restarts in the middle of right and wrong replies, and rewards mending them.",
    when="The model should learn to notice and mend its own mistakes.",
    trial={"n": 2, "updates": 1},
)
def satori(
    task: draw.Source,
    *,
    n: Annotated[int, Option("Replies from the question for each prompt.", at_least=1)] = 4,
    bonus: Annotated[float, Option("For mending a wrong reply, and against breaking a right one.", at_least=0)] = 0.5,
    back: Annotated[int, Option("Most lines that a restart drops.", at_least=0)] = 2,
    cue: Annotated[str, Option("The words after which the policy looks again; none if empty.")] = "Check again.",
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 25.0,
    temperature: opt.Temperature = 0.6,
    reward_model: Annotated[
        str | None, Option("The directory of a reward model, whose squashed score is added.")
    ] = None,
) -> Method:
    """Satori's restart-and-explore: replies from the question, and from the middle of a right and of a wrong reply.

    a restart drops the last t lines of a reply, t uniform in 0 .. back, adds the words of `cue`, and the policy goes on
    r = (1[correct] - 1) + sigmoid(standardised reward model, if there is one)
      + bonus [wrong made right] - bonus [right made wrong]
    A_t, R_t by GAE(1, lam), the reward at the last token, A whitened
    L = mean over the policy's tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef max((V - R)^2, (V_clip - R)^2) / 2 ]

    Departures: the meta-action tokens (<|continue|>, <|reflect|>, <|explore|>) and the format tuning that teaches
    them are left out, so an action is a line and plain words stand for <|reflect|> (a model that does not know them
    must first learn to go on from them); the replies that are restarted are of the present policy and of this step,
    where the paper prepares them before training; the reward model is standardised by running moments of its scores,
    where the code uses moments stored with it; n, back, value_coef and updates are choices of ours. critic_lr is the
    released script's: 5e-6 for the critic, 2e-7 for the policy.
    """
    preference = [score.squashed_model(score.Moments("preferences"))] if reward_model else []
    return method(
        draw=draw.prompts(task),
        rollout=rollout.restarted(task, n, back, cue, temperature=temperature),
        score=chain(
            score.verify(task), *preference, score.reflection_reward(bonus, *(["preference"] if reward_model else []))
        ),
        credit=chain(
            credit.behaviour(),
            credit.streams("critic", value="value"),
            credit.token_rewards(score="shaped", kl=None),
            credit.gae(lam=lam),
            credit.whiten(),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
        models=roles(critic=trained(outputs=1, lr=critic_lr), **score.rm_role(reward_model)),
    )
