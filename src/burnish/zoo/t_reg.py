"""T-REG: Preference Optimization with Token-Level Reward Regularization (arXiv 2412.02685)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish import draw
from burnish.core.parts import Part, supplies
from burnish.core.schedules import Schedule, at
from burnish.core.step import Step
from burnish.core.types import Group, Trace, Turn
from burnish.credit.preference import fill
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.compared import note_pairs
from burnish.learn.terms.preference_pairs import pair_sides
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.given_pairs import from_pairs_and_ref
from burnish.papers import Paper
from burnish.rollout.conditioned import conditioned

T_REG = Paper("t-reg", "2412.02685", "T-REG: Preference Optimization with Token-Level Reward Regularization")


def regularised_tokens(margin: Tensor, rewarded_w: Tensor, rewarded_l: Tensor, alpha: float, beta: float) -> Tensor:
    """T-REG (Zhou et al., arXiv 2412.02685), per pair.

        L = -log s(m) + alpha sg[s(-m)] (R_w + R_l),   R(y) = -beta sum_t rhat_t log pi(y_t)

    m is DPO's margin, `rewarded` is sum_t rhat_t log pi(y_t) with the token rewards rhat that contrasted prompts
    give. The slope on a token's log pi is -s(-m) beta (1 + alpha rhat) in w and +s(-m) beta (1 - alpha rhat) in l.
    alpha = 0 is DPO.
    """
    return -F.logsigmoid(margin) - alpha * beta * torch.sigmoid(-margin).detach() * (rewarded_w + rewarded_l)


@supplies("stream:token_reward")
def contrasted_rewards(better: str, worse: str, *, who: str = "ref", author: str = "demo") -> Part:
    """T-REG's token rewards (arXiv 2412.02685), as stream "token_reward".

        rhat_t = s( log pi_who(y_t | better, x) - log pi_who(y_t | worse, x) ) - 1/2

    better, worse  words that are put before the prompt: an instruction to answer well, and one to answer badly
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        model, traces = step.models[who], [(group, trace) for group in groups for trace in group.traces]
        logps = []
        for words in (better, worse):
            told = [
                _under(trace, model.chat.prompt(conditioned(group.task, words)), model.context)
                for group, trace in traces
            ]
            masks = [trace.by(author) for trace in told]
            found = model.streams(told, masks, {"logp"}, step.settings.token_budget)
            logps.append(
                [
                    out["logp"][mask] if "logp" in out else mask[:0].float()
                    for out, mask in zip(found, masks, strict=True)
                ]
            )
        for (_, trace), good, bad in zip(traces, *logps, strict=True):
            fill(trace, "token_reward", 0.0)
            places, n = trace.by(author).nonzero().flatten(), min(len(good), len(bad))
            trace.streams["token_reward"][places[:n]] = torch.sigmoid(good[:n] - bad[:n]) - 0.5
        return groups

    return Part(
        name="contrasted_rewards",
        call=call,
        reads=frozenset({f"model:{who}.logp", f"tokens:{author}"}),
        writes=frozenset({"stream:token_reward"}),
    )


def _under(trace: Trace, prompt: Tensor, context: int) -> Trace:
    """The trace's reply after another prompt, cut to the context: tokens beyond it get no reward."""
    turns, room = [Turn(prompt, "task")], context - len(prompt)
    for turn in trace.turns[1:]:
        turns.append(replace(turn.first(max(0, room)), parent=turns[-1]))
        room -= len(turn)
    return Trace(tuple(turns))


def token_regularised(beta: Schedule, alpha: float, *, on: Authors = "policy") -> Term:
    """T-REG: DPO and a language-model loss weighted by the token rewards in stream "token_reward"."""

    def loss(live: Live) -> Tensor:
        w, r, now = *pair_sides(live), at(beta, live.clock)
        note_pairs(live, w, r, now)
        rewarded = live.per_row(live.token_reward * live.logp)
        margin = now * (w.logratio - r.logratio)
        return regularised_tokens(margin, rewarded[live.pairs[:, 0]], rewarded[live.pairs[:, 1]], alpha, now)

    needs = ("logp", "entropy")
    return Term(
        name="reply", on=on, unit="pair", loss=loss, live=needs, streams=("ref", "token_reward"), norm=unit_mean
    )


@register(
    T_REG,
    family="preference",
    summary="DPO with token rewards that the reference gives itself under a good and a bad instruction.",
    when="You want token-level credit without another model.",
)
def t_reg(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    alpha: Annotated[float, Option("Weight of the token regulariser; 0 is DPO.", at_least=0)] = 0.25,
    better: Annotated[str, Option("Words before the prompt that ask for a good reply.")] = (
        "Give a correct and helpful answer."
    ),
    worse: Annotated[str, Option("Words before the prompt that ask for a bad reply.")] = (
        "Give a wrong and unhelpful answer."
    ),
) -> Method:
    """T-REG.

    rhat_t = s( log ref(y_t | better, x) - log ref(y_t | worse, x) ) - 1/2
    L = -log s(m) + alpha sg[s(-m)] [R(y_w) + R(y_l)],  R(y) = -sum_t beta rhat_t log pi(y_t),  mean over pairs

    m = beta [lr_w - lr_l] is DPO's margin. alpha = 0 is DPO. The paper searches alpha in 0.1, 0.25, 0.5 and has longer
    instructions; its text was not available, so that the held weight s(-m) is the reading of two agreeing summaries.
    """
    return from_pairs_and_ref(task, token_regularised(beta, alpha, on="demo"), then=contrasted_rewards(better, worse))
