"""SPA-RL: Reinforcing LLM Agents via Stepwise Progress Attribution (arXiv 2505.20732)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout
from burnish.core.schedules import after, before
from burnish.method import Method, Option, Phase, chain, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

SPA_RL = Paper("spa-rl", "2505.20732", "SPA-RL: Reinforcing LLM Agents via Stepwise Progress Attribution")


@register(
    SPA_RL,
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
