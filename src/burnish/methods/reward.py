"""Training models that score replies: from pairs, ranked lists, ratings and labels."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.credit.reward import graded_margin, ratings
from burnish.learn.terms import reward as terms
from burnish.method import Draw, Method, Option, Part, Rollout, chain, frozen, method, roles, trained
from burnish.methods import opt, papers, register

Attributes = Annotated[
    str,
    Option(
        "The rated attributes, with commas: columns of the data (chosen_NAME and rejected_NAME of pairs). Two need no "
        "column: quality (1 for chosen replies and demonstrations, else 0) and length (a share of the longest reply)."
    ),
]
END = credit.claim("end", "demo", positions="end")


def given_replies(task: draw.Source) -> tuple[Draw, Rollout]:
    """The replies of the data: chosen and rejected ones where it has pairs, else the demonstrations."""
    paired = {"chosen", "rejected"} <= task.gives or {"demo", "mistake"} <= task.gives
    if paired:
        return draw.pairs(task), rollout.given("chosen", "rejected", reader="rm")
    return draw.demos(task), rollout.given("demo", reader="rm")


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


def _ranked(task: draw.Source, n: int, temperature: float, term: learn.Term) -> Method:
    """A reward model of ranked lists: those of the data, else sampled replies of the starting model, verified."""
    listed = "responses" in task.gives
    author = "demo" if listed else "start"
    replies: Rollout = rollout.sample(n, who="start", temperature=temperature)
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
def ranked_reward_model(task: draw.Source, *, n: opt.GroupSize = 4, temperature: opt.Temperature = 1.0) -> Method:
    """InstructGPT's reward model on K ranked replies of a prompt.

    L = 1/C(K, 2) sum over i < j of -log s( r(x, y_i) - r(x, y_j) ),  y_1 the best;  mean over prompts

    All pairs of a prompt are in one update, and each reply is read once. Where the data has no ranked replies
    (`responses` with scores or ranks), n replies of the starting model are sampled and ranked by the verifier. Of
    replies with equal scores the first counts. K = 2 is reward_model.
    """
    return _ranked(task, n, temperature, terms.score_all_pairs(on=learn.CLAIMED))


@register(
    papers.PESSIMISTIC_MLE_RLHF,
    family="reward",
    summary="A reward model by the Plackett-Luce likelihood of rankings, for a pessimistic use of its scores.",
    when="Ranked replies, and a policy that must not be rewarded where the data says nothing.",
)
def pessimistic_mle(task: draw.Source, *, n: opt.GroupSize = 4, temperature: opt.Temperature = 1.0) -> Method:
    """The maximum-likelihood reward model of K-wise comparisons.

    L = -sum over k < K of log[ e^r_k / sum over j >= k of e^r_j ],  best first;  mean over prompts

    It learns the reward theta . phi(x, y), phi the last hidden state. The pessimism is in its use: the scorer
    `pessimistic` subtracts coef |phi - nu| in the norm of (Sigma + lambda I)^-1, Sigma the covariance of the feature
    differences of the data. K = 2 is reward_model. Departure: the paper fixes phi and constrains theta (sum 0, bounded
    norm); here both are trained, without the constraint.
    """
    return _ranked(task, n, temperature, terms.score_ranking(on=learn.CLAIMED))


@register(
    papers.DPA,
    family="reward",
    summary="A reward model with one output per rated attribute, by regression; missing ratings are left out.",
    when="Replies are rated for several attributes, such as helpfulness and verbosity.",
)
def rating_model(task: draw.Source, *, attributes: Attributes = "quality,length") -> Method:
    """Ratings by regression: a linear head with one output for each attribute.

    L = mean over the rated attributes of (r_i(x, y) - rating_i)^2;  mean over replies

    A missing rating (no column, or null) counts nothing. Ratings should be on one scale: the heads are used side by
    side (`weighted`, `dpa`, `armorm`). The product has one label per attribute, in their order. DPA's reward model has
    10 heads on a scale of 0 to 100.
    """
    rated = names_of(attributes, task)
    drawn, replies = given_replies(task)
    return method(
        draw=drawn,
        rollout=replies,
        credit=chain(credit.claim("rating", "demo", positions="end"), ratings(rated)),
        learn=learn.Learn(terms.rate(len(rated), on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=len(rated))),
        product="rm",
    )


KNOWN = ("quality", "length")  # attributes that need no column


def names_of(attributes: str, task: draw.Source) -> tuple[str, ...]:
    """The names in a list with commas, each once; raises ValueError for one of which the task says nothing."""
    found = tuple(dict.fromkeys(name.strip() for name in attributes.split(",") if name.strip()))
    if not found:
        raise ValueError("attributes names nothing to rate; give columns with commas, such as helpfulness,verbosity")
    for name in found:
        if name not in KNOWN:
            columns = (name, f"chosen_{name}", f"rejected_{name}", f"demo_{name}")
            draw.require_column(task, columns, f"attributes={attributes}", f"how {name} a reply is", "")
    return found


@register(
    papers.SIMPLEDC_RLHF_SIMPLIFICATION,
    family="reward",
    summary="A classifier of two kinds of text; its chance for the wanted kind is a reward.",
    when="You have texts of the wanted kind and of another (simplified and original), and no comparisons.",
)
def discriminator(task: draw.Source) -> Method:
    """A binary classifier as a reward model.

    L = -log s( r(x, y) ) for replies of the wanted kind, -log s( -r(x, y) ) for the others;  mean over replies

    The wanted kind is the chosen reply of a pair, or the demonstration (else a row's label says). r is the log-odds;
    the scorer `discriminated` gives s(r), and 0 to replies that are too short, because a classifier takes an empty text
    for a simple one. Departure: of the paper the abstract was available; its classifier's architecture is not known.
    """
    if draw.has_labels(task):
        drawn, replies, labels = draw.labelled_replies(task), rollout.given("demo", reader="rm"), score.given_label()
    else:
        drawn, replies = draw.pairs(task), rollout.given("chosen", "rejected", reader="rm")
        labels = score.given_order("chosen", "rejected")
    return method(
        draw=drawn,
        rollout=replies,
        score=labels,
        credit=chain(END, credit.label()),
        learn=learn.Learn(terms.score_labels(on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1)),
        product="rm",
    )
