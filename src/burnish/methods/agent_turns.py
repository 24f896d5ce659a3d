"""Methods for episodes of several turns: credit to turns, attempts at one question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch

from burnish import credit, draw, learn, rollout, select
from burnish.core.schedules import after, before
from burnish.method import Method, Option, Phase, Trace, chain, frozen, method, roles, trained
from burnish.methods import opt, papers, register
from burnish.tasks.attempts import Attempt, Attempts

Episodes = Annotated[int, Option("Episodes of each task, which are compared with each other.", at_least=2)]
_GAMES = {"task": "guess", "n": 3}


@register(
    papers.GIGPO,
    family="agents",
    summary="GRPO over episodes, plus a comparison of turns that began in the same state.",
    when="Episodes are long, and the environment can name its states (key()).",
    example="burnish train gigpo --task guess",
    trial=_GAMES,
)
def gigpo(
    task: draw.Source,
    *,
    n: Episodes = 8,
    omega: Annotated[float, Option("Weight of the comparison within a state.", at_least=0)] = 1.0,
    gamma: Annotated[float, Option("Discount per turn.", at_least=0, at_most=1)] = 0.95,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.01,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Group-in-group policy optimisation.

    A = A_E + omega A_S on the tokens of each turn;  A_E = R - mean R over the episodes of the task
    A_S = G_k - mean of G over all turns of the group that began in the same state, 0 where no other did
    G_k = r_k + gamma G_{k+1}
    L = mean over episodes of the mean over tokens of -min(rho A, clip(rho) A) + beta k3(pi || ref)

    omega = 0, or no state met twice, is GRPO on episodes without the division by the deviation. Nothing is divided by
    a deviation, as in the released code's default and its WebShop script; its ALFWorld script divides. Departures: an
    episode is one sequence here, where the authors train each turn as a row of its own, so their means run over turns;
    their penalty of invalid actions belongs to the environment. The episode's mean is over episodes, as in the paper;
    the released code takes it over turns.
    """
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.play(n, temperature=temperature),
        credit=chain(credit.state_groups(omega, gamma), credit.behaviour(), credit.ref()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta)),
        models=roles(ref=frozen("policy")),
    )


@register(
    papers.STARPO,
    family="agents",
    summary="PPO over whole episodes, on the tasks whose episodes differ most.",
    when="Multi-turn RL with a critic collapses on tasks that are always won or always lost.",
    example="burnish train starpo --task guess",
    trial={**_GAMES, "updates": 1},
)
def starpo(
    task: draw.Source,
    *,
    n: Episodes = 16,
    share: Annotated[
        float, Option("Share of the groups that are kept: those with the largest deviation.", above=0, at_most=1)
    ] = 0.25,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    value_eps: opt.ValueClipRange = 0.2,
    entropy: opt.EntropyCoef = 0.001,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 1.0,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 10.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """StarPO-S of RAGEN: trajectory-level PPO, stabilised.

    Of the groups, the given share with the largest deviation of R is learned from.
    r_t = 0, plus R at the policy's last token;  A_t by GAE(gamma, lam) over the policy's tokens, whitened; no KL
    L = mean over tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A) - entropy H + the critic's clipped loss

    share = 1, eps_high = 0.2 and entropy = 0 is PPO over episodes (StarPO). The released code keeps 25% of 8 groups of
    16; the critic's learning rate is ten times the policy's there (1e-5 and 1e-6). Its optional bi-level GAE, with each
    turn's own reward: --swap "token_rewards=turn_rewards(); gae=bi_level_gae()".
    """
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.play(n, temperature=temperature),
        select=select.most_spread(share),
        credit=chain(
            credit.behaviour(),
            credit.streams("critic", "policy", value="value"),
            credit.token_rewards(kl=None),
            credit.gae(gamma=gamma, lam=lam),
            credit.whiten(),
            credit.claim("pg", "policy", tag="spread"),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps_low, eps_high, on=learn.CLAIMED),
            learn.entropy_bonus(coef=entropy),
            learn.value_clip(value_eps),
            updates=updates,
        ),
        models=roles(critic=trained(outputs=1, lr=critic_lr)),
    )


@register(
    papers.UFO,
    family="agents",
    summary="PPO on up to five attempts at a question, with no more feedback than 'think again'.",
    when="A model repeats its wrong answers when it is asked again, and you have single questions with a verifier.",
    example="burnish train ufo --task sort",
    trial={"n": 2, "attempts": 2, "updates": 1},
)
def ufo(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    attempts: Annotated[int, Option("The most attempts of an episode.", at_least=1)] = 5,
    decay: Annotated[
        float, Option("Each attempt before the right one multiplies the reward by it.", at_least=0, at_most=1)
    ] = 0.5,
    repeat: Annotated[float, Option("Penalty of repeated answers, by their share.", at_least=0)] = 0.5,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    kl: opt.KLPenalty = 0.001,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Unary feedback as observation: the environment says only "Incorrect. Please think again."

    R = decay^t - repeat (1 - E / T), t the wrong attempts before the right one (0 instead of decay^t where none is
    right), T the attempts made, E their different final answers, compared without case and spaces
    A_t by GAE(1, 1) over the policy's tokens with R at its last token and -kl log(pi_old/ref) at each; PPO's losses

    attempts = 1 is PPO on single replies. The released code adds a penalty of 0.1 for a bad format, which belongs to
    the task here.
    """

    def pay(made: Sequence[Attempt], over: bool) -> float:
        if not over:
            return 0.0
        different = len({attempt.answer for attempt in made})
        won = decay ** (len(made) - 1) if made[-1].right else 0.0
        return won - repeat * (1 - different / len(made))

    tried = Attempts(task, attempts, pay)
    return method(
        draw=draw.prompts(tried, "env"),
        rollout=rollout.play(n, turns=attempts, temperature=temperature),
        credit=chain(
            credit.behaviour(),
            credit.ref(),
            credit.streams("critic", "policy", value="value"),
            credit.token_rewards(kl=kl),
            credit.gae(gamma=1.0, lam=1.0),
            credit.whiten(),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps), updates=updates),
        models=roles(ref=frozen("policy"), critic=trained(outputs=1, lr=critic_lr)),
    )


@register(
    papers.SCORE,
    family="agents",
    summary="Two attempts at a question; the second is paid for being better than the first.",
    when="You want a model that corrects itself without being told what was wrong.",
    example="burnish train score --task sort",
    trial={"n": 3, "first_stage": 0},
)
def score(
    task: draw.Source,
    *,
    n: Episodes = 8,
    alpha: Annotated[float, Option("Reward of the change from the first attempt to the second.", at_least=0)] = 10.0,
    beta: opt.KLCoef = 0.01,
    hold: Annotated[float, Option("KL coefficient that holds the first attempt in the first stage.", at_least=0)] = 0.1,
    first_stage: Annotated[int, Option("Steps of the first stage.", at_least=0)] = 20,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """SCoRe: self-correction by multi-turn RL in two stages.

    Stage I   A on the second attempt only, from r(y2);  L = REINFORCE + beta KL on both + hold KL on the first attempt
    Stage II  rewards r(y1) and r(y2) + alpha (r(y2) - r(y1)), each credited to its own attempt (gamma = 0); beta KL

    A = reward of the attempt - mean over the episodes of the task;  KL to the starting policy by k3 at the tokens
    alpha = 0 is two-turn REINFORCE in stage II. The paper's alpha is 10, beta 0.01 and hold 0.1 (mathematics) or 0.25
    (code); its stages have 1,500 to 3,000 steps together. Departures: the paper does not name its baseline, the mean of
    the group is ours; its estimator of the KL is not said; the text between the attempts is ours.
    """

    def second_only(made: Sequence[Attempt], over: bool) -> float:
        return made[-1].score if over else 0.0

    def progress(made: Sequence[Attempt], over: bool) -> float:
        return made[-1].score + (alpha * (made[-1].score - made[0].score) if over else 0.0)

    again = "There might be an error in the answer above. Correct it, and answer again."
    sources = [Attempts(task, 2, pay, until_right=False, again=again) for pay in (second_only, progress)]
    plays = [rollout.play(n, turns=2, temperature=temperature) for _ in sources]
    draws = [draw.prompts(source, "env") for source in sources]
    surrogate = learn.pg_reinforce(norm=learn.seq_sum_mean)
    first = Phase(
        name="first",
        times=before(first_stage),
        draw=draws[0],
        rollout=plays[0],
        credit=chain(credit.own_turns(), credit.ref(), credit.claim("hold", "policy", where=_first_reply)),
        learn=learn.Learn(
            surrogate,
            learn.kl_k3(coef=beta, norm=learn.seq_sum_mean),
            learn.kl_k3(coef=hold, norm=learn.seq_sum_mean, on=learn.CLAIMED, name="hold"),
        ),
    )
    main = Phase(
        times=after(first_stage),
        draw=draws[1],
        rollout=plays[1],
        credit=chain(credit.own_turns(), credit.ref()),
        learn=learn.Learn(surrogate, learn.kl_k3(coef=beta, norm=learn.seq_sum_mean)),
    )
    return Method(models=roles(ref=frozen("policy")), phases=(first, main))


def _first_reply(trace: Trace) -> torch.Tensor:
    """[T]: the tokens of the policy's first turn."""
    found = torch.zeros(len(trace), dtype=torch.bool)
    for turn, start, end in trace.spans():
        if turn.author == "policy":
            found[start:end] = True
            break
    return found
