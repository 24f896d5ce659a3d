"""SALMON: Self-Alignment with Principle-Following Reward Models (arXiv 2310.05910)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.learn.terms.reward import score_pairs
from burnish.method import Method, Option, method, roles, trained
from burnish.methods import papers, register
from burnish.tasks.principled import Principled

END = credit.claim("end", "demo", positions="end")


@register(
    papers.SALMON,
    family="reward",
    summary="A reward model whose prompt carries principles, which decide the label of each pair.",
    when="You want one reward model that can be steered by principles.",
    trial={"task": "sort:1"},
)
def salmon(
    task: draw.Source,
    *,
    negate: Annotated[
        float, Option("Chance that a principle is negated, in text and sign.", at_least=0, at_most=1)
    ] = 0.5,
    noise: Annotated[float, Option("Share of labels that are flipped.", at_least=0, below=0.5)] = 0.1,
    chance: Annotated[
        float, Option("The number of principles is geometric with this chance.", above=0, at_most=1)
    ] = 0.2,
    most: Annotated[int, Option("Principles in one prompt.", at_least=1)] = 8,
) -> Method:
    """SALMON's principle-following reward model.

    s_p = score of principle p in favour of the chosen reply / variance of p's scores over the data
    y_w = the reply that the drawn principle of largest |s_p| prefers, P = the drawn principles
    L = -log sigmoid( r(x + P, y_w) - r(x + P, y_l) ),  mean over pairs

    The scores are the column `principle_scores` of data from burnish pairs --reward "principle_labels(JUDGE)"; rows
    without it have one principle, that the chosen reply is better. negate 0 and noise 0 with such rows: a Bradley-Terry
    reward model with a fixed principle in the prompt. Left out: the higher noise (25%) of the paper's rule-made labels.
    """
    source = Principled(task, negate, noise, chance, most)
    return method(
        draw=draw.pairs(source),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=END,
        learn=learn.Learn(score_pairs(on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1)),
        product="rm",
    )
