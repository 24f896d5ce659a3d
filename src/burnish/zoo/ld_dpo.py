"""Length Desensitization in Direct Preference Optimization (arXiv 2409.06411)."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from burnish import draw
from burnish.core.parts import Part, supplies
from burnish.core.schedules import Schedule
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.preference import fill
from burnish.learn.maths.preference import Replies, logistic
from burnish.learn.term import Authors, Term
from burnish.learn.terms import preference_pairs as pairs
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.given_pairs import from_pairs_and_ref
from burnish.papers import Paper

LD_DPO = Paper("ld-dpo", "2409.06411", "Length Desensitization in Direct Preference Optimization")


@supplies("stream:weight")
def beyond_the_shorter(alpha: float, *, author: str = "demo") -> Part:
    """LD-DPO's token weights, as stream "weight": 1 up to the length of the pair's shorter reply, alpha beyond it."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for trace in group.traces:
                fill(trace, "weight", 1.0)
            for a, b in group.pairs or ():
                both = group.traces[a], group.traces[b]
                shared = min(int(trace.by(author).sum()) for trace in both)
                for trace in both:
                    places = trace.by(author).nonzero().flatten()
                    trace.streams["weight"][places[shared:]] = alpha
        return groups

    return Part(
        name=f"beyond_the_shorter({alpha:g})",
        call=call,
        reads=frozenset({"pairs", f"tokens:{author}"}),
        writes=frozenset({"stream:weight"}),
    )


def desensitised(beta: Schedule, *, on: Authors = "policy", weight: str = "weight") -> Term:
    """LD-DPO: DPO with the policy's log-probs weighted token by token and the reference's in full."""

    def loss(w: Replies, r: Replies, beta: float) -> Tensor:
        return logistic(beta * ((w.logp - w["ref"]) - (r.logp - r["ref"])))

    return pair_term(loss, beta=beta, anchor=None, streams=("ref",), weight=weight, on=on)


REFERENCES = {"whole": desensitised, "weighted": pairs.weighted_tokens}


@register(
    LD_DPO,
    family="preference",
    summary="DPO in which tokens past the shorter reply's length count less.",
    when="DPO makes replies longer and longer.",
)
def ld_dpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    alpha: Annotated[float, Option("Weight of tokens past the shorter reply; 1 is DPO.", at_least=0, at_most=1)] = 0.5,
    reference: Annotated[
        str, Option("Whether the reference's log-probs are weighted too.", choices=tuple(REFERENCES))
    ] = "whole",
) -> Method:
    """LD-DPO.

    log pi^(y) = sum over t <= lp of log pi(y_t) + alpha sum over t > lp of log pi(y_t),  lp = min(|y_w|, |y_l|)
    L = -log s( beta [log pi^(y_w) - log ref(y_w)] - beta [log pi^(y_l) - log ref(y_l)] ),  mean over pairs

    alpha = 1 is DPO. Implementations differ in whether the reference is weighted; most do not (`whole`). alpha is tuned
    per model in the paper.
    """
    return from_pairs_and_ref(task, REFERENCES[reference](beta, on="demo"), then=beyond_the_shorter(alpha))
