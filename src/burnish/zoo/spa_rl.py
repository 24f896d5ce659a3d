"""SPA-RL: Reinforcing LLM Agents via Stepwise Progress Attribution (arXiv 2505.20732).

Rewards of turns from a model of their contributions to the outcome (SPA-RL, arXiv 2505.20732).

The term that trains a model to divide an outcome among the turns that led to it.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.schedules import Schedule, after, before
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn import maths
from burnish.learn.norms import unit_mean
from burnish.learn.term import CLAIMED, Live, Term
from burnish.learn.terms.fit import head_term
from burnish.learn.terms.rows import row_mean
from burnish.method import Method, Option, Phase, chain, roles, trained
from burnish.methods import opt, register
from burnish.models.chat import Chat
from burnish.papers import Paper

SPA_RL = Paper("spa-rl", "2505.20732", "SPA-RL: Reinforcing LLM Agents via Stepwise Progress Attribution")

METRICS = (
    ("executed", "What was kept", "share of the actions that the environment executed", "up"),
    ("contribution", "What was kept", "mean contribution of a turn to the outcome, as the estimator sees it"),
)


@supplies("stream:outcome")
def outcome(score: str = "reward") -> Part:
    """Stream "outcome": the episode's score, on all its tokens."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["outcome"] = torch.full((len(trace),), float(trace.scores[score]))

    return per_trace(write, name="outcome", reads=frozenset({f"score:{score}"}), writes=frozenset({"stream:outcome"}))


@supplies("stream:reward")
def contribution_rewards(
    alpha: float,
    beta: float,
    *,
    final: float = 0.0,
    refusal: str = "",
    stream: str = "contribution",
    author: str = "policy",
) -> Part:
    """r_k = alpha c_k + beta g_k at the last token of turn k, plus final R at the last of all; 0 at other tokens.

    c_k: the stream of contributions at the last token of turn k;  g_k = 1 where the action was executed, else 0;
    R: the episode's score. With contributions that sum to R, alpha 1 and beta 0 the rewards sum to R.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        reward = torch.full((len(trace),), float("nan"))
        trace.streams["reward"] = reward
        spans = [(start, end) for turn, start, end in trace.spans() if turn.author == author and end > start]
        grounded = executed(trace, step.models[author].chat, refusal, author) if beta else [True] * len(spans)
        for (start, end), real in zip(spans, grounded, strict=True):
            reward[start:end] = 0.0
            earned = float(trace.streams[stream][end - 1])
            reward[end - 1] = alpha * earned + beta * real
            step.notes.add("contribution", earned)
        step.notes.add("executed", sum(grounded), max(1, len(grounded)))
        if spans:
            reward[spans[-1][1] - 1] += final * trace.scores["reward"]

    return per_trace(
        write,
        name=f"contribution_rewards({alpha:g}, {beta:g})",
        reads=frozenset({f"tokens:{author}", f"stream:{stream}", "score:reward"}),
        writes=frozenset({"stream:reward"}),
    )


def executed(trace: Trace, chat: Chat, refusal: str, author: str = "policy") -> list[bool]:
    """Whether the environment executed each turn of the author.

    It did not where its info said so (note "valid" of play), or where its answer contains the words of a refusal. The
    answer to the last turn is not part of an episode: there only the info can tell.
    """
    said = trace.note.get("valid") or []
    found: list[bool] = []
    for i, turn in enumerate(trace.turns):
        if turn.author == author and len(turn):
            answer = chat.text(trace.turns[i + 1].tokens) if refusal and i + 1 < len(trace.turns) else ""
            k = len(found)
            found.append((k >= len(said) or bool(said[k])) and not (refusal and refusal in answer))
    return found


def redistribution(
    target: str = "outcome", *, trainee: str = "estimator", coef: Schedule = 1.0, name: str = "redistribution"
) -> Term:
    """(sum_k c_k - R)^2 for each trace, c_k the score after the k-th claimed token, R in a stream (SPA-RL)."""

    def loss(live: Live) -> Tensor:
        total, wanted = live.per_row(live.outputs["score"]), row_mean(live, live.streams[target])
        live.note("error", (total - wanted).abs())
        return maths.squared_error(total, wanted.to(total.dtype))

    return head_term(
        loss, "score", target, name=name, trainee=trainee, on=CLAIMED, unit="sequence", norm=unit_mean, coef=coef
    )


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
    tasks, played = draw.prompts(task, "env"), rollout.play(n)
    estimate = Phase(
        name="estimate",
        times=before(first),
        draw=tasks,
        rollout=played,
        credit=chain(outcome(), credit.claim("redistribution", "policy", positions="last")),
        learn=learn.Learn(redistribution(), updates=estimator_updates),
    )
    main = Phase(
        times=after(first),
        draw=tasks,
        rollout=played,
        credit=chain(
            credit.behaviour(),
            credit.streams("estimator", "policy", score="contribution"),
            contribution_rewards(alpha, beta, final=final, refusal=refusal),
            credit.streams("critic", "policy", value="value"),
            credit.gae(gamma=gamma, lam=lam),
            credit.whiten(),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps), updates=updates),
    )
    models = roles(estimator=trained(outputs=1, lr=estimator_lr), critic=trained(outputs=1, lr=critic_lr))
    return Method(models=models, phases=(estimate, main))
