"""Methods for episodes of several turns: credit to turns, attempts at one question."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout
from burnish.credit.turns import state_groups
from burnish.method import Method, Option, chain, frozen, method, roles, trained
from burnish.methods import opt, papers, register
from burnish.select.filters import most_spread

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
        rollout=rollout.play(n),
        credit=chain(state_groups(omega, gamma), credit.behaviour(), credit.ref()),
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
) -> Method:
    """StarPO-S of RAGEN: trajectory-level PPO, stabilised.

    Of the groups, the given share with the largest deviation of R, rounded down, is learned from.
    r_t = 0, plus R at the policy's last token;  A_t by GAE(gamma, lam) over the policy's tokens, whitened; no KL
    L = mean over tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A) - entropy H + the critic's clipped loss

    share = 1, eps_high = 0.2 and entropy = 0 is PPO over episodes (StarPO). The released code keeps 25% of 8 groups of
    16; the critic's learning rate is ten times the policy's there (1e-5 and 1e-6). Its optional bi-level GAE, with each
    turn's own reward: --swap "token_rewards=turn_rewards(); gae=bi_level_gae()".
    """
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.play(n),
        select=most_spread(share),
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
