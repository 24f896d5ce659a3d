"""Tool-Augmented Reward Modeling (arXiv 2310.01045).

Replies followed by what a tool says of them and a place for the score (Themis, arXiv 2310.01045).
"""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, select
from burnish.core.parts import Rollout, names, supplies
from burnish.core.schedules import Schedule
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.learn.maths.preference import bradley_terry
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.reward import note_order
from burnish.method import Method, Option, method, roles, trained
from burnish.methods import papers, register
from burnish.rollout.given import given_trace
from burnish.score.written import calculated, with_tools


def logit_pairs(*, coef: Schedule = 1.0, trainee: str = "judge", on: Authors = "score", name: str = "end") -> Term:
    """Bradley-Terry on a language model's own score: the logit of the claimed token (one a trace, stream "token").

    A row of the language model's head is a linear head on the state before that token.
    """

    def loss(live: Live) -> Tensor:
        logits = live.logits.gather(-1, live.token[:, None])[:, 0]
        scores = live.per_row(logits)
        chosen, rejected = scores[live.pairs[:, 0]], scores[live.pairs[:, 1]]
        note_order(live, chosen, rejected)
        return bradley_terry(chosen, rejected)

    return Term(
        name=name,
        on=on,
        unit="pair",
        loss=loss,
        live=("logits",),
        streams=("token",),
        norm=unit_mean,
        trainee=trainee,
        coef=coef,
    )


@supplies("tokens:tool", "tokens:score")
def checked(*columns: str, author: str = "demo", reader: str = "judge") -> Rollout:
    """One trace per column: the reply, its tool trace and the token of the score.

    The tool trace is the column NAME_trace of the data ("chosen_trace"), where it has one, else the calculator's.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, settings = step.models[reader], step.settings
        limit, cut = min(model.context, settings.max_length or model.context), settings.on_long == "truncate"
        groups = []
        for task in tasks:
            traces = []
            for i, column in enumerate(columns):
                said = task.given.get(f"{column}_trace")
                said = calculated(str(task.given[column])) if said is None else str(said)
                reply = given_trace(task, column, author, model.chat, limit, i, cut)
                traces.append(with_tools(reply, said, model.chat, limit))
            groups.append(Group(task, traces))
        return groups

    return Rollout(
        name=f"checked({', '.join(columns)})",
        call=call,
        reads=frozenset({"task:prompt"}) | names("given", columns),
        writes=names("tokens", ("task", author, "tool", "score")) | names("tag", columns),
    )


@register(
    papers.THEMIS,
    family="reward",
    summary="A language model that learns to write what a tool says of a reply, and then scores it.",
    when="Whether a reply is right can be looked up or calculated before it is judged.",
)
def themis(
    task: draw.Source,
    *,
    coef: Annotated[float, Option("Weight of the comparison beside the tool trace's likelihood.", above=0)] = 0.5,
) -> Method:
    """Themis: tool-augmented reward modelling.

    L = mean over the trace's tokens of -log pi(t) + coef [ -log s( r(x, y_w) - r(x, y_l) ) ]

    A reply is followed by its trace: tool calls, observations, a rationale. It is the column chosen_trace or
    rejected_trace of the data, else a calculator's check of the equations in the reply. r is the logit of the end token
    after the trace, so that one model with one head writes and scores. Departures: the paper has a separate scalar
    head, seven tools, and a model that decides itself what to look up.
    """
    return method(
        draw=draw.pairs(task),
        rollout=checked("chosen", "rejected"),
        select=select.given_pairs(),
        credit=credit.token_ids(),
        learn=learn.Learn(
            learn.imitate(on="tool", trainee="judge", name="trace"),
            logit_pairs(coef=coef, on="score"),
        ),
        models=roles("judge", judge=trained()),
        product="judge",
    )
