"""MARFT: Multi-Agent Reinforcement Fine-Tuning (arXiv 2504.16129).

Several agents in one task: in each step of the environment they speak in a fixed order, and the last one acts.

A seat is a name and an instruction. The episode is one conversation: the observation and the first seat's instruction,
its reply, the second seat's instruction, its reply, and so on; what the last seat replies is the action. Every agent
reads what the agents before it said. All seats have the weights of the policy.
"""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import torch

from burnish import credit, draw, learn, rollout, select
from burnish.core.messages import Message, text_of
from burnish.core.parts import Part, supplies
from burnish.core.schedules import Schedule, after
from burnish.core.step import Step
from burnish.core.task import Task
from burnish.core.types import Group
from burnish.credit.gae import advantages_and_returns
from burnish.credit.turn_gae import fill_own
from burnish.envs.protocol import Observed, Outcome, offers, read_outcome, reset_arguments
from burnish.learn.term import Authors, Term
from burnish.learn.terms.rows import row_sum
from burnish.learn.terms.surrogates import reply_ratio_term
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.select.turn_rows import episodes_of, own_span
from burnish.tasks.source import Source
from burnish.tasks.task_set import MadeTasks

MARFT = Paper("marft", "2504.16129", "MARFT: Multi-Agent Reinforcement Fine-Tuning")

TurnGamma = Annotated[float, Option("Discount per turn.", at_least=0, at_most=1)]


@dataclass(frozen=True)
class Seat:
    """An agent: its name, and the instruction that it is given before each of its turns."""

    name: str
    instruction: str


def read_seats(text: str) -> tuple[Seat, ...]:
    """Seats in their order, from "planner: Think what to do. | actor: Act."."""
    seats = []
    for piece in text.split("|"):
        name, colon, instruction = (part.strip() for part in piece.partition(":"))
        if not name or not colon:
            raise ValueError(f"the seat {piece.strip()!r} has no name; write NAME: INSTRUCTION | NAME: INSTRUCTION")
        seats.append(Seat(name, instruction))
    names = [seat.name for seat in seats]
    if len(set(names)) < len(names):
        raise ValueError(f"two seats have the same name among {', '.join(names)}; rename one")
    return tuple(seats)


class InTurn(MadeTasks):
    """The tasks of a source with an environment, played by several agents."""

    def __init__(self, source: Source, seats: tuple[Seat, ...]) -> None:
        if "env" not in source.gives:
            raise ValueError(f"task {source.name!r} has no environment for agents to act in; choose one, such as guess")
        super().__init__(source)
        self.seats = seats

    def task(self, split: str, index: int) -> Task:
        found = self.source.task(split, index)
        env = partial(Table, found.given["env"], self.seats)
        return replace(found, prompt=_with(found.prompt, self.seats[0].instruction), given={**found.given, "env": env})


class Table:
    """The environment of one episode: the inner environment steps after the last seat's turn."""

    def __init__(self, make: Any, seats: tuple[Seat, ...]) -> None:
        self.inner, self.speakers = make(), seats
        self.said: list[str] = []

    def reset(self, task: Any = None, seed: int = 0) -> Any:
        """The inner environment's first observation; the task's prompt has it already."""
        self.said = []
        return self.inner.reset(**reset_arguments(self.inner.reset, task, seed))

    def step(self, action: str) -> Outcome | Awaitable[Outcome]:
        """A turn of the seat whose turn it is: the next seat's instruction, or what the environment answers."""
        self.said.append(action)
        if len(self.said) < len(self.speakers):
            return Outcome(self.speakers[len(self.said)].instruction, 0.0)
        self.said = []
        found = self.inner.step(action)
        return self._later(found) if inspect.isawaitable(found) else self._followed(found)

    async def _later(self, found: Awaitable[object]) -> Outcome:
        return self._followed(await found)

    def _followed(self, found: Any) -> Outcome:
        outcome = read_outcome(found)
        return replace(outcome, observation=_with(outcome.observation, self.speakers[0].instruction))

    def key(self) -> str:
        """The inner state, the seat whose turn it is, and what was said before it in this step."""
        inner = str(self.inner.key()) if offers(self.inner, "key") else str(id(self))
        return " | ".join([inner, self.speakers[len(self.said)].name, *self.said])

    def close(self) -> None:
        if offers(self.inner, "close"):
            self.inner.close()


def _with(observed: Observed, instruction: str) -> Any:
    """An observation and an instruction after it: in its last message, where it has messages."""
    if not instruction:
        return observed
    if isinstance(observed, str):
        return f"{observed}\n{instruction}".strip()
    last: Message = {**observed[-1], "content": f"{text_of(observed[-1])}\n{instruction}".strip()}
    return (*observed[:-1], last)


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
