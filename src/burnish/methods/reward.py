"""Training models that score replies: from pairs, ranked lists, ratings and labels."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.credit.reward import graded_margin
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, Part, Rollout, chain, frozen, method, roles, trained
from burnish.methods import opt, papers, register

END = credit.claim("end", "demo", positions="end")


@register(
    papers.BRADLEY_TERRY_RM,
    family="reward",
    summary="A Bradley-Terry reward model: one number per reply, from comparisons.",
    when="You have comparisons, and a method that needs a score.",
)
def reward_model(
    task: draw.Source,
    *,
    centre: Annotated[float, Option("Keeps scores around 0; arXiv 2312.09244 uses 0.01.", at_least=0)] = 0.0,
    margin: Annotated[float, Option("How far apart the scores of a pair must be.", at_least=0)] = 0.0,
    grades: Annotated[
        str | None,
        Option("A column with the grade of each preference (a number or Llama 2's words), added to the margin."),
    ] = None,
    label_smoothing: Annotated[float, Option("The chance that a label is wrong.", at_least=0, below=0.5)] = 0.0,
    shrink: Annotated[float, Option("Keeps each score small; Open-Assistant uses 0.001.", at_least=0)] = 0.0,
) -> Method:
    """A Bradley-Terry reward model r(x, y): a linear head on the last token of the reply.

    d = r(x, y_w) - r(x, y_l) - margin - grade
    L = -(1 - e) log s(d) - e log s(-d) + centre (r_w + r_l)^2 + shrink (r_w^2 + r_l^2) / 2,  e = label_smoothing

    Mean over pairs. Llama 2's words significantly better, better, slightly better and negligibly better are the grades
    1, 2/3, 1/3 and 0. Pairs with equal replies are dropped. The product is saved as a transformers
    sequence-classification model with one label; pass its directory as --reward-model to other methods. With all
    options at their defaults it is the published loss.
    """
    by_grade = (graded_margin(grades, margin),) if grades else ()
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=chain(END, *by_grade),
        learn=learn.Learn(
            terms.score_pairs(
                centre=centre,
                margin="margin" if grades else margin,
                label_smoothing=label_smoothing,
                shrink=shrink,
                on=learn.CLAIMED,
            )
        ),
        models=roles("rm", rm=trained(outputs=1)),
        product="rm",
    )


def ranked_model(task: draw.Source, n: int, term: learn.Term) -> Method:
    """A reward model of ranked lists: those of the data, else sampled replies of the starting model, verified."""
    listed = "responses" in task.gives
    author = "demo" if listed else "start"
    replies: Rollout = rollout.sample(n, who="start")
    scored: Part = score.given_scores() if listed else score.verify(task, author="start", reader="start")
    return method(
        draw=draw.prompts(task),
        rollout=rollout.listed(reader="rm") if listed else replies,
        score=scored,
        select=select.ranked(),
        credit=credit.claim("end", author, positions="end"),
        learn=learn.Learn(term),
        models=roles("rm", rm=trained(outputs=1), **({} if listed else {"start": frozen("base")})),
        product="rm",
    )


@register(
    papers.BRADLEY_TERRY_RM,
    family="reward",
    summary="A reward model of rankings: all pairs of a prompt's replies, each prompt with the same weight.",
    when="Several ranked replies a prompt (4 to 9 in InstructGPT).",
)
def ranked_reward_model(task: draw.Source, *, n: opt.GroupSize = 4) -> Method:
    """InstructGPT's reward model on K ranked replies of a prompt.

    L = 1/C(K, 2) sum over i < j of -log s( r(x, y_i) - r(x, y_j) ),  y_1 the best;  mean over prompts

    All pairs of a prompt are in one update, and each reply is read once. Where the data has no ranked replies
    (`responses` with scores or ranks), n replies of the starting model are sampled and ranked by the verifier. Of
    replies with equal scores the first counts. K = 2 is reward_model.
    """
    return ranked_model(task, n, terms.score_all_pairs(on=learn.CLAIMED))
