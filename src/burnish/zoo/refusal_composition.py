"""Cannot or Should Not? Automatic Analysis of Refusal Composition in IFT/RLHF Datasets and Refusal Behavior of
Black-Box LLMs (arXiv 2412.16974).
"""

from __future__ import annotations

import string
from typing import Annotated

from burnish import credit, draw, learn, rollout
from burnish.credit.categories import category_labels
from burnish.learn.terms.labels import many_labels
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import papers, register
from burnish.verifiers.refusal_categories import BRANCHES, CANNOT, SHOULD_NOT, categories_of

_LETTERS = {
    "task": "logic:1",
    "column": "answer",
    "cannot": ",".join(string.ascii_uppercase[:13]),
    "should_not": ",".join(string.ascii_uppercase[13:]),
}


@register(
    papers.REFUSAL_COMPOSITION,
    family="reward",
    summary="A classifier of refusals: which of 16 reasons a reply has, of those that cannot or should not be met.",
    when="You have replies labelled with reasons, and data or a policy whose refusals you want to see or filter.",
    example="burnish train refusal_classifier --task refusals.jsonl",
    trial=_LETTERS,
)
def refusal_classifier(
    task: draw.Source,
    *,
    column: Annotated[str, Option("The column with the categories of a reply: a list, empty for none.")] = "refusal",
    cannot: Annotated[str, Option("Categories of what cannot be done, with commas.")] = ",".join(CANNOT),
    should_not: Annotated[str, Option("Categories of what should not be done.")] = ",".join(SHOULD_NOT),
) -> Method:
    """Refusal composition as classification with several labels.

    L = mean over the categories of -y log s(z) - (1 - y) log s(-z),  z a linear head on the last token of the reply;
    mean over replies

    A reply has any number of categories, of two branches. Precision and recall are noted for each branch. The product
    has one label per category, first those of `cannot`; `burnish refusals` reads it, and so does the reward `refusal`.
    Of the paper the abstract and summaries were available: the names of its 16 categories are RECONSTRUCTED, and its
    classifiers (BERT, and logistic regression on embeddings) are replaced by a model of the run.
    """
    categories = categories_of(cannot, should_not)
    return method(
        draw=draw.prompts(task, "demo", column, tag="demos"),
        rollout=rollout.given("demo", reader="rm"),
        credit=chain(credit.claim("refusal", "demo", positions="end"), category_labels(categories, column)),
        learn=learn.Learn(many_labels({branch: categories.places(branch) for branch in BRANCHES}, on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=len(categories.names))),
        product="rm",
    )
