"""Inference-Time Scaling for Generalist Reward Modeling (arXiv 2504.02495)."""

from __future__ import annotations

from typing import Annotated, Literal

from burnish import draw, learn, rollout, score
from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.judges import templates
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, papers, register
from burnish.methods.compositions import judge_grpo
from burnish.tasks.judged import ScoredReplies

Words = Annotated[Literal["full", "brief"], Option("How much a question says; brief is for small models.")]
_SCORES = {"full": templates.PRINCIPLES, "brief": templates.PRINCIPLES_BRIEF}
_SMALL = {"task": "sort:1", "words": "brief"}


def right_where_hard(threshold: float = 0.5, *, score: str = "reward", author: str = "policy") -> Part:
    """The replies that score more than the threshold, of groups in which not all do: tasks that are too easy teach
    nothing (SPCT's rejective fine-tuning, arXiv 2504.02495). Groups without such a reply are dropped.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        easy = 0
        for group in groups:
            right = [trace for trace in group.traces if trace.scores[score] > threshold]
            easy += len(right) == len(group.traces)
            group.traces = [] if len(right) == len(group.traces) else right
        step.notes.add("dropped/too_easy", easy, len(groups))
        return [group for group in groups if group.traces]

    return Part(
        name=f"right_where_hard({threshold:g})",
        call=call,
        reads=frozenset({f"score:{score}", f"tokens:{author}"}),
        updates=frozenset({f"tokens:{author}"}),
    )


@register(
    papers.SPCT,
    family="reward",
    summary="A judge that writes principles, a critique and scores learns by GRPO to put the best reply first.",
    when="You have preferences (pairs or lists) and want a generative reward model.",
    example="burnish train spct --words brief",
    trial={"n": 4, **_SMALL},
)
def spct(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.08,
    words: Words = "full",
) -> Method:
    """Self-principled critique tuning, its rule-based online RL.

    R = +1 if the score of the truly best reply is strictly above all others, else -1;  GRPO with KL coefficient beta

    The judge reads all replies of a row in a shuffled order and ends with a score from 1 to 10 for each. A tie, and an
    answer without all scores, is -1; there is no format reward, so a much smaller beta lets the format collapse. beta
    = 0.08 is the paper's for 27B weights (0.002 for 16B). spct_rft is the paper's first stage; the reward `principles`
    uses the judge, with votes and a meta reward model.
    """
    source = ScoredReplies(task, _SCORES[words])
    return judge_grpo(draw.questions(source), source, n, eps, beta)


@register(
    papers.SPCT,
    family="reward",
    summary="Rejective fine-tuning of a judge: imitate its own right verdicts on rows that are not too easy.",
    when="Before spct, so that the judge knows the format.",
    example="burnish train spct_rft --words brief",
    trial={"n": 4, **_SMALL},
)
def spct_rft(task: draw.Source, *, n: opt.GroupSize = 3, words: Words = "full") -> Method:
    """The first stage of SPCT: samples of the judge whose verdict is right, of rows on which not all are right.

    L = -(1 / N) sum over the N tokens of the kept answers of log pi

    Rows on which all n answers are right are dropped as too easy, and rows on which none is as useless. The paper's
    hinted sampling, which shows the label for some rows, is left out.
    """
    source = ScoredReplies(task, _SCORES[words])
    return method(
        draw=draw.questions(source),
        rollout=rollout.sample(n),
        score=score.verify(source),
        select=right_where_hard(0.0),
        learn=learn.Learn(learn.imitate(), logp_temperature=1.0),
        models=roles(),
    )
