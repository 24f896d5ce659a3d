"""Methods that divide an episode's outcome among its turns, or among the agents that took them."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.core.schedules import after, before
from burnish.method import Method, Option, Phase, chain, method, roles, trained
from burnish.methods import opt, papers, register
from burnish.tasks.speakers import InTurn, read_seats

TurnGamma = Annotated[float, Option("Discount per turn.", at_least=0, at_most=1)]


@register(
    papers.SPA_RL,
    family="agents",
    summary="A model learns what each turn contributes to the outcome; PPO is paid turn by turn.",
    when="The reward comes at the end of long episodes, and early turns should get their share of it.",
    example="burnish train spa_rl --task guess --refusal 'say a number'",
    trial={"task": "guess", "n": 2, "first": 0, "updates": 1, "estimator_updates": 1, "refusal": "a"},
)
def spa_rl(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    alpha: Annotated[float, Option("Weight of a turn's contribution.", at_least=0)] = 1.0,
    beta: Annotated[float, Option("Reward of a turn whose action was executed.", at_least=0)] = 0.5,
    final: Annotated[float, Option("Weight of the outcome itself, at the last token.", at_least=0)] = 0.0,
    refusal: Annotated[
        str, Option("Words in an environment's answer which say that the action was not executed.")
    ] = "Nothing happens",
    first: Annotated[int, Option("Steps in which only the estimator is trained.", at_least=0)] = 10,
    estimator_updates: Annotated[int, Option("Passes of the estimator over each batch.", at_least=1)] = 8,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 10.0,
    estimator_lr: Annotated[float, Option("Multiplies the learning rate for the estimator.", above=0)] = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """SPA-RL: stepwise progress attribution.

    estimator  c_k = f(hidden state at the last token of turn k);  mean over episodes of (sum_k c_k - R)^2
    PPO        r = alpha c_k + beta g_k at the last token of turn k, g_k = 1 where the action was executed;  GAE, clip

    In the first steps the starting policy plays and the estimator is trained; then the estimator is fixed, and PPO
    begins. alpha = beta = 0 with final = 1 is PPO with the outcome at the last token; beta = 0 with an exact estimator
    has rewards that sum to R. The environment's info says that an action was not executed ("valid": False), or its
    answer contains `refusal`. The paper's text is followed; the released code multiplies the rewards by the number of
    later turns, and one of its scripts overwrites c_k. Departures: the estimator is a copy of the model with a linear
    head in place of an MLP on its hidden states; first, estimator_updates and PPO's constants are ours.
    """
    tasks, played = draw.prompts(task, "env"), rollout.play(n, temperature=temperature)
    estimate = Phase(
        name="estimate",
        times=before(first),
        draw=tasks,
        rollout=played,
        credit=chain(credit.outcome(), credit.claim("redistribution", "policy", positions="last")),
        learn=learn.Learn(learn.redistribution(), updates=estimator_updates),
    )
    main = Phase(
        times=after(first),
        draw=tasks,
        rollout=played,
        credit=chain(
            credit.behaviour(),
            credit.streams("estimator", "policy", score="contribution"),
            credit.contribution_rewards(alpha, beta, final=final, refusal=refusal),
            credit.streams("critic", "policy", value="value"),
            credit.gae(gamma=gamma, lam=lam),
            credit.whiten(),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps), updates=updates),
    )
    models = roles(estimator=trained(outputs=1, lr=estimator_lr), critic=trained(outputs=1, lr=critic_lr))
    return Method(models=models, phases=(estimate, main))


@register(
    papers.MARFT,
    family="agents",
    summary="Several agents speak in turn before each action; one GAE chain runs through all of them.",
    when="A planner and an actor, or any fixed order of roles, should learn from one shared reward.",
    example="burnish train marft --task guess:1 --seats 'planner: Think. | actor: Guess.'",
    trial={"task": "guess", "n": 2, "critic_warmup": 0, "updates": 1},
)
def marft(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    seats: Annotated[
        str, Option("The agents in their order: NAME: INSTRUCTION | NAME: INSTRUCTION. The last one acts.")
    ] = "reasoner: Think about the next action. | actor: Now act.",
    gamma: TurnGamma = 0.99,
    lam: opt.Lam = 0.95,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    entropy: opt.EntropyCoef = 0.01,
    critic_warmup: Annotated[int, Option("Steps before the policy moves.", at_least=0)] = 5,
    updates: opt.Updates = 5,
    critic_lr: opt.CriticLR = 10.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """MARFT on the level of actions: an utterance of any agent is one action.

    In each step of the environment the agents speak in order, each reading the ones before; the last one's text acts.
    delta_k = r_k + gamma V_{k+1} - V_k,  A_k = delta_k + gamma lam A_{k+1} over all utterances k of an episode, so the
    next value of an agent is that of the next agent;  A standardised over the utterances of the batch
    L = mean over utterances of -min(rho A, clip(rho) A), rho = pi(u_k)/pi_old(u_k) of the whole utterance, - entropy H
      + mean over utterances of the critic's clipped squared error

    One seat is PPO on the level of turns. The constants are the released code's, but for the learning rates (there 5e-7
    and 5e-4) and the warm-up. Departures: all agents have the policy's weights and differ by their instructions, where
    the paper gives each a LoRA of its own; all are updated together (agent_iteration_interval 0). The released code
    skips an update when the KL exceeds 0.001, and treats an advantage of 0 as missing: both are left out, and so is
    its variant with the ratio of tokens. `--swap "pg=pg_sequence(0.2, 0.2)"` divides the log-ratio by the tokens.
    """
    source = InTurn(task, read_seats(seats))
    return method(
        draw=replace(draw.prompts(source, "env"), source=source),
        rollout=rollout.play(n, temperature=temperature),
        select=select.by_turn(),
        credit=chain(
            credit.behaviour(),
            credit.streams("critic", "policy", value="value"),
            credit.chain_gae(gamma=gamma, lam=lam),
            credit.standardised_turns(),
            credit.last_turn("pg", "turn"),
            credit.last_turn("value", "turn", "first"),
        ),
        learn=learn.Learn(
            learn.pg_whole(eps, eps, coef=after(critic_warmup), on=learn.CLAIMED),
            learn.entropy_bonus(coef=after(critic_warmup, entropy)),
            learn.value_clip(value_eps, on=learn.CLAIMED),
            updates=updates,
        ),
        models=roles(critic=trained(outputs=1, lr=critic_lr)),
    )
