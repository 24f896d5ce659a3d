"""Think-RM: Enabling Long-Horizon Reasoning in Generative Reward Models (arXiv 2505.16265).

Advantages from comparisons of all pairs of a group.
"""

from __future__ import annotations

from typing import Annotated, Literal

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.baselines import spread
from burnish.judges import templates, vote
from burnish.judges.question import Template
from burnish.judges.vote import pair_advantages
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register
from burnish.methods.compositions import judge_grpo
from burnish.score.judges import read_judge
from burnish.score.judges.judge import Judge
from burnish.score.judges.pairs import ROW, differences
from burnish.tasks.judged import GradedPairs


@supplies("score:lead")
def leads(judge: Judge, template: Template, orders: int = 1) -> Part:
    """scores["lead"] = (1/G) sum over j of d_ij, and the row d_i of the matrix as note["leads"]."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        unread = []
        for party in differences(groups, judge, template, orders, step):
            _write([item.trace for item in party.own], party.matrix)
            if party.why and all(party.why.values()):  # not one verdict: zeros here would be a guess
                unread.append(party.own[0].group)
        step.drop(unread, "unread verdicts")
        return [group for group in groups if not any(group is one for one in unread)]

    reads = judge.reads | {"tokens:policy"}
    return Part(name=f"leads({judge.name})", call=call, reads=reads, writes=frozenset({"score:lead"}))


@supplies("score:lead")
def leads_by_score(score: str = "reward") -> Part:
    """The same with d_ij = r_i - r_j of a score: no judge is asked."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            worth = [trace.scores[score] for trace in group.traces]
            _write(group.traces, [[mine - other for other in worth] for mine in worth])
        return groups

    return Part(name="leads_by_score", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"score:lead"}))


def _write(traces: list[Trace], matrix: list[list[float]]) -> None:
    for trace, row, strength in zip(traces, matrix, vote.pair_strengths(matrix), strict=True):
        trace.note[ROW] = row
        trace.scores["lead"] = strength


@supplies("stream:adv")
def by_leads(eps: float = 1e-6) -> Part:
    """A_i = (1/G) sum_j d_ij / sqrt( sum over ordered pairs of d^2 / (2 G (G - 1)) + eps ) (Think-RM, 2505.16265).

    With d_ij = r_i - r_j it is (r_i - mean r) / sqrt(var r + eps), var unbiased: GRPO's advantage but for the eps.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for trace, advantage in zip(
                group.traces, pair_advantages([t.note[ROW] for t in group.traces], eps), strict=True
            ):
                spread(trace, advantage)
        return groups

    return Part(name="by_leads", call=call, reads=frozenset({"score:lead"}), writes=frozenset({"stream:adv"}))


Words = Annotated[Literal["full", "brief"], Option("How much a question says; brief is for small models.")]
_GRADED = {"full": templates.GRADED_PAIR, "brief": templates.GRADED_PAIR_BRIEF}
_SMALL = {"task": "sort:1", "words": "brief"}


@register(
    papers.THINK_RM,
    family="reward",
    summary="A judge that reasons before its verdict on a pair learns by GRPO; reward by the label or its sign.",
    when="You have pairs, perhaps with a strength of 1 to 3, and a judge that may think for long.",
    example="burnish train think_rm --words brief",
    trial={"n": 4, **_SMALL},
)
def think_rm(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.001,
    words: Words = "full",
) -> Method:
    """Think-RM: an integer verdict from -3 to 3 without 0 after free reasoning.

    R = 1 if the verdict is the label, 1/2 if only its sign is, else 0;  GRPO

    The label's size is the row's column `strength`; without one the sign alone counts (the paper's binary variant). An
    answer that cannot be read is 0. The paper's warm-up by SFT on long traces is burnish train sft. n and beta are
    choices of ours. pairwise_grpo trains a policy with the judge.
    """
    source = GradedPairs(task, _GRADED[words])
    return judge_grpo(draw.questions(source), source, n, eps, beta)


@register(
    papers.THINK_RM,
    family="reward",
    summary="GRPO on a judge's comparisons of all pairs of a group, with the advantage of the whole matrix.",
    when="A judge that compares (think_rm), and no score of single replies.",
    trial={"n": 4, "task": "sort:1"},
)
def pairwise_grpo(
    task: draw.Source,
    *,
    judge: Annotated[
        str | None, Option("Who compares (docs/judges.md); without one the task's verifier scores.")
    ] = None,
    n: opt.GroupSize = 4,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    orders: Annotated[int, Option("Orders in which a pair is shown: 1 or both.", at_least=1, at_most=2)] = 1,
    words: Words = "full",
) -> Method:
    """Pairwise RLHF of Think-RM.

    A_i = (1/G) sum_j d_ij / sqrt( sum over ordered pairs of d^2 / (2 G (G - 1)) + 1e-6 ),  d_ij in {-3, ..., 3}

    d_ij is the judge's verdict on replies i and j, d_ji = -d_ij, 0 where it cannot be read; a group without any that
    can is left out. Each pair is asked about once, in an order by a hash of the texts; the paper keeps the order of
    sampling, and with it the judge's preference for a position. Without a judge d_ij = r_i - r_j of the task's
    verifier, which is GRPO.
    """
    who = read_judge(judge) if judge else None
    compared = leads_by_score() if who is None else leads(who, _GRADED[words], orders)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.verify(task), compared) if who is None else compared,
        credit=chain(by_leads(), credit.behaviour(), credit.ref()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta, norm=learn.seq_mean)),
        models=roles(ref=frozen("policy"), **(dict(who.models) if who else {})),
    )
