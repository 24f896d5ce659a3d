"""Trust Region Preference Approximation: A simple and stable reinforcement learning algorithm for LLM reasoning
(arXiv 2504.04524).
"""

from __future__ import annotations

from typing import Annotated

import torch

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import Part, chain, per_trace, supplies
from burnish.core.schedules import Schedule
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.preference import fill
from burnish.learn import maths
from burnish.learn.maths.preference import logistic
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.compared import pair_term
from burnish.learn.terms.rows import row_mean
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

TRPA = Paper(
    "trpa",
    "2504.04524",
    "Trust Region Preference Approximation: A simple and stable reinforcement learning algorithm for LLM reasoning",
)


@supplies("stream:factor")
def factor_of_right(factor: float, *, score: str = "reward") -> Part:
    """TRPA's anisotropy, as stream "factor": `factor` on replies of the first level (a score of 1 or more), else 1."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        fill(trace, "factor", factor if trace.scores[score] >= 1 else 1.0)

    return per_trace(
        write,
        name=f"factor_of_right({factor:g})",
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"stream:factor"}),
    )


def kl_to(anchor: str, *, coef: Schedule, norm: Norm = token_mean, on: Authors = "policy", name: str = "kl") -> Term:
    """k3 at the sampled tokens, of the KL to the policy whose log-probs are in the stream `anchor` ("old")."""

    def loss(live: Live) -> torch.Tensor:
        return maths.k3(live.logp, live.streams[anchor])

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=(anchor,), norm=norm, coef=coef)


def levelled(beta: Schedule, *, on: Authors = "policy") -> Term:
    """TRPA: -log s(c beta (m_w - m_l)), m the mean log-ratio of a token, c the factor in stream "factor" of w."""
    return pair_term(
        lambda w, r, beta: logistic(beta * w["factor"].to(w.logratio) * (w.logratio - r.logratio)),
        beta=beta,
        marks=("factor",),
        reduce=row_mean,
        on=on,
    )


@register(
    TRPA,
    family="preference",
    summary="Online DPO on every pair of different levels (right, answered, neither), in a trust region.",
    when="Verifiable tasks, where rules rank replies and the size of a reward should not matter.",
)
def trpa(
    task: draw.Source,
    *,
    n: opt.GroupSize = 16,
    beta: opt.Beta = 0.1,
    anisotropy: Annotated[float, Option("Factor of beta where the better reply is right.", above=0)] = 2.5,
    kl: opt.KLCoef = 0.001,
) -> Method:
    """TRPA.

    levels: right, a wrong answer, no answer;  m(y) = mean over tokens of log pi - log ref
    L = mean over pairs of different levels of -log s( c beta [m(y_w) - m(y_l)] ) + kl x token mean of k3(pi, pi_old)

    c = anisotropy where y_w is right, else 1. The constants are the authors'. Their code has a fourth level (cut
    off), and a loss on single replies for micro-batches without a pair; here such prompts are dropped.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.verify(task), score.partial_for_answering(0.1)),
        select=select.every_pair("shaped"),
        credit=chain(credit.behaviour(), credit.ref(), factor_of_right(anisotropy, score="shaped")),
        learn=learn.Learn(levelled(beta), kl_to("old", coef=kl)),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
