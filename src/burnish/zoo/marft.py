"""MARFT: Multi-Agent Reinforcement Fine-Tuning (arXiv 2504.16129)."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Annotated

import torch

from burnish import credit, draw, learn, rollout, select
from burnish.core.parts import Part, supplies
from burnish.core.schedules import Schedule, after
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.gae import advantages_and_returns
from burnish.credit.turn_gae import fill_own
from burnish.learn.term import Authors, Term
from burnish.learn.terms.rows import row_sum
from burnish.learn.terms.surrogates import reply_ratio_term
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.select.turn_rows import episodes_of, own_span
from burnish.tasks.speakers import InTurn, read_seats

MARFT = Paper("marft", "2504.16129", "MARFT: Multi-Agent Reinforcement Fine-Tuning")

TurnGamma = Annotated[float, Option("Discount per turn.", at_least=0, at_most=1)]


@supplies("stream:adv", "stream:returns")
def chain_gae(*, gamma: float = 0.99, lam: float = 0.95) -> Part:
    """GAE over the turns of an episode, of all its agents, from rows of one turn each (MARFT, arXiv 2504.16129).

        delta_k = r_k + gamma V_{k+1} - V_k,   A_k = delta_k + gamma lam A_{k+1},   returns_k = A_k + V_k,   V_{K+1} = 0

    V_k is stream "value" at the first token of turn k: the value of the state that the agent of turn k meets, which
    holds what the agents before it said. So the next value of an agent is that of the next agent in the same step of
    the environment, and for the last agent that of the first one in the next step. All tokens of a row's own turn have
    its numbers.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for rows in episodes_of(group):
                rewards = torch.tensor([row.turn_scores["reward"][-1] for row in rows])
                values = torch.stack([row.streams["value"][own_span(row)[0]] for row in rows]).float()
                found = advantages_and_returns(rewards, values, gamma, lam)
                for name, numbers in zip(("adv", "returns"), found, strict=True):
                    fill_own(rows, name, numbers.tolist())
        return groups

    return Part(
        name="chain_gae",
        call=call,
        reads=frozenset({"tag:turn", "turn_score:reward", "stream:value"}),
        writes=frozenset({"stream:adv", "stream:returns"}),
    )


def standardised_turns() -> Part:
    """Stream "adv" with mean 0 and deviation 1 over the rows of the batch, each of which counts once."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        rows = [row for group in groups for row in group.traces]
        numbers = [float(row.streams["adv"][own_span(row)[0]]) for row in rows]
        if numbers:
            mean, spread = statistics.fmean(numbers), statistics.pstdev(numbers)
            fill_own(rows, "adv", [(number - mean) / (spread + 1e-8) for number in numbers])
        return groups

    return Part(
        name="standardised_turns",
        call=call,
        reads=frozenset({"tag:turn", "stream:adv"}),
        updates=frozenset({"stream:adv"}),
    )


def pg_whole(
    eps_low: float, eps_high: float, *, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pg"
) -> Term:
    """PPO's clip on the ratio pi(y) / pi_old(y) of all claimed tokens of a trace together: an utterance is one action.

    The log-ratio is the sum over the tokens; `pg_sequence` takes their mean.
    """
    return reply_ratio_term(row_sum, eps_low, eps_high, coef, on, name)


@register(
    MARFT,
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
        rollout=rollout.play(n),
        select=select.by_turn(),
        credit=chain(
            credit.behaviour(),
            credit.streams("critic", "policy", value="value"),
            chain_gae(gamma=gamma, lam=lam),
            standardised_turns(),
            credit.last_turn("pg", "turn"),
            credit.last_turn("value", "turn", "first"),
        ),
        learn=learn.Learn(
            pg_whole(eps, eps, coef=after(critic_warmup), on=learn.CLAIMED),
            learn.entropy_bonus(coef=after(critic_warmup, entropy)),
            learn.value_clip(value_eps, on=learn.CLAIMED),
            updates=updates,
        ),
        models=roles(critic=trained(outputs=1, lr=critic_lr)),
    )
