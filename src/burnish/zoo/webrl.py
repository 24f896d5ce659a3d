"""WebRL: Training LLM Web Agents via Self-Evolving Online Curriculum Reinforcement Learning (arXiv 2411.02337).

Advantages of single actions from a critic of success, and which replayed actions are trained on (WebRL).
"""

from __future__ import annotations

from typing import Annotated

import torch

from burnish import credit, draw, learn, rollout, select
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.turn_gae import fill_own
from burnish.method import Method, Option, chain, method, roles, snapshot, trained
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.select.task_replay import PAST
from burnish.select.turn_rows import episodes_of, own_span

WEBRL = Paper(
    "webrl", "2411.02337", "WebRL: Training LLM Web Agents via Self-Evolving Online Curriculum Reinforcement Learning"
)


def mixed_advantage(reward: float, ahead: float, value: float, final: float, lam: float) -> float:
    """A = lam (r + V(s') - V(s)) + (1 - lam)(r_T - V(s)): the one-step error mixed with the outcome."""
    return lam * (reward + ahead - value) + (1 - lam) * (final - value)


@supplies("stream:gain", "stream:success")
def success_advantages(lam: float, *, above: float = 0.5) -> Part:
    """Stream "gain": the advantage of each row's own turn; stream "success": 1 where its episode scored above, else 0.

    V(s_k) = min over the critic's heads of sigmoid(stream "value") at the first token of turn k, 0 after the last turn.
    The reward of an episode counts as 1 or 0, by its success, and is paid at its last turn.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for rows in episodes_of(group):
                final = float(rows[0].scores["reward"] > above)
                values = [float(row.streams["value"][own_span(row)[0]].sigmoid().min()) for row in rows]
                gains = []
                for k, value in enumerate(values):
                    last = k == len(rows) - 1
                    ahead = 0.0 if last else values[k + 1]
                    gains.append(mixed_advantage(final if last else 0.0, ahead, value, final, lam))
                    step.notes.add("advantage", gains[-1])
                fill_own(rows, "gain", gains)
                fill_own(rows, "success", [final] * len(rows))
        return groups

    return Part(
        name=f"success_advantages({lam:g})",
        call=call,
        reads=frozenset({"tag:turn", "score:reward", "stream:value"}),
        writes=frozenset({"stream:gain", "stream:success"}),
    )


@supplies("claim:*")
def fresh_or_familiar(term: str, low: float, high: float) -> Part:
    """The term claims the own turn of fresh rows, and of replayed rows where low < p <= high.

    p = exp(mean over the turn's tokens of stream "old"): the geometric mean of its token probabilities, so that the
    perplexity 1 / p is in [1 / high, 1 / low). Actions that the policy is sure of already, and those that it would
    hardly take, are left out.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for row in (row for group in groups for row in group.traces):
            own = slice(*own_span(row))
            kept = True
            if PAST in row.tags:
                kept = low < float(row.streams["old"][own].double().mean().exp()) <= high
                step.notes.add("replayed_kept", kept)
            row.streams[f"claim:{term}"] = torch.zeros(len(row), dtype=torch.bool)
            row.streams[f"claim:{term}"][own] = kept
        return groups

    return Part(
        name=f"fresh_or_familiar({term})",
        call=call,
        reads=frozenset({"tag:turn", f"tag:{PAST}", "stream:old"}),
        writes=frozenset({f"claim:{term}"}),
    )


@register(
    WEBRL,
    family="agents",
    summary="Each action's log-ratio regresses its advantage; failed tasks come back, past successes are replayed.",
    when="Success is 0 or 1 at the end of an episode, tasks differ much in difficulty, and drift must be bounded.",
    example="burnish train webrl --task guess:1",
    trial={"task": "guess", "n": 2, "sync": 1, "warmup": 0, "beta": 0.3, "updates": 1},
)
def webrl(
    task: draw.Source,
    *,
    n: opt.Replies = 4,
    beta: opt.Beta = 0.3,
    lam: Annotated[float, Option("Share of the one-step error in the advantage.", at_least=0, at_most=1)] = 0.5,
    sync: opt.Sync = 5,
    warmup: Annotated[int, Option("Steps before the critic chooses tasks.", at_least=0)] = 5,
    easy: Annotated[
        float, Option("Tasks of which the critic expects more are left out.", at_least=0, at_most=1)
    ] = 0.75,
    hard: Annotated[
        float, Option("Tasks of which the critic expects less are left out.", at_least=0, at_most=1)
    ] = 0.05,
    again: Annotated[float, Option("Failed tasks in a batch, at most: a share.", at_least=0, at_most=1)] = 0.5,
    replay: Annotated[float, Option("Past successes beside a batch, in shares of its prompts.", at_least=0)] = 0.5,
    sure: Annotated[float, Option("Replayed actions above this probability are left out.", above=0, at_most=1)] = 0.95,
    unsure: Annotated[float, Option("Replayed actions at most this likely are left out.", at_least=0, below=1)] = 0.5,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """WebRL: a curriculum of failed tasks, a critic of success, and a regression held to the last phase's policy.

    A = lam (r + V(s') - V(s)) + (1 - lam)(r_T - V(s));  V = the smaller of two heads, by cross-entropy on success
    L = mean over actions of (beta sum_t log pi/pi_ref(a_t) - A)^2 + the critic's loss;  pi_ref: the policy at the
    start of the phase, which has `sync` steps
    tasks     failed ones and new ones, where hard <= V(s_0) <= easy
    replay    past successes, action by action where unsure < p <= sure, p the geometric mean of the token probabilities

    The loss and lam are as second-hand texts give them and are not confirmed; the released actor is another method (a
    sign of a clamped advantage, a smooth-L1 loss). The band and the range of p are confirmed by the released code.
    pi = pi_ref with A = 0 has no loss. Departures: new instructions are the source's next tasks, because an environment
    cannot be made of a text that a model writes; reward and success are the environment's in place of an outcome reward
    model's; beta, shares, sync, warmup and updates are ours.
    """
    store = select.TaskStore("successes", per_task=8)
    return method(
        draw=draw.failed_again(task, "env", low=hard, high=easy, share=again, warmup=warmup),
        rollout=rollout.play(n),
        select=chain(select.beside_successes(store, replay), select.by_turn()),
        credit=chain(
            credit.ref(),
            credit.old(),
            credit.streams("critic", "policy", value="value"),
            success_advantages(lam),
            fresh_or_familiar("step", unsure, sure),
            credit.last_turn("chance", "turn", "first"),
        ),
        learn=learn.Learn(
            learn.regress_advantage(beta, coef=2 * beta**2, on=learn.CLAIMED),
            learn.chance_fit("success", on=learn.CLAIMED),
            updates=updates,
        ),
        models=roles(ref=snapshot("policy", sync), critic=trained(outputs=2, lr=critic_lr)),
    )
