"""Tool-Augmented Reward Modeling (arXiv 2310.01045)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, select
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, method, roles, trained
from burnish.methods import papers, register
from burnish.rollout.checked import checked


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
            terms.logit_pairs(coef=coef, on="score"),
        ),
        models=roles("judge", judge=trained()),
        product="judge",
    )
