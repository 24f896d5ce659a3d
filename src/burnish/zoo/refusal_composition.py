"""Cannot or Should Not? Automatic Analysis of Refusal Composition in IFT/RLHF Datasets and Refusal Behavior of
Black-Box LLMs (arXiv 2412.16974).

Labels of replies from a column of the data.

The term of a classifier with several labels for each reply.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish import credit, draw, learn, rollout
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.fit import head_term
from burnish.learn.terms.reward import row_heads, row_numbers
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import papers, register
from burnish.verifiers.refusal_categories import BRANCHES, CANNOT, SHOULD_NOT, Categories, categories_of


@supplies("stream:labels")
def category_labels(categories: Categories, column: str, *, author: str = "demo") -> Part:
    """Stream "labels" [T, k]: 1 for each category that the row's column names."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        found = categories.labels(group.task.given[column], f"task {group.task.key[:60]!r}, column {column!r},")
        trace.streams["labels"] = torch.tensor(found).expand(len(trace), len(found)).clone()

    return per_trace(
        write,
        name=f"category_labels({column})",
        reads=frozenset({f"tokens:{author}", f"given:{column}"}),
        writes=frozenset({"stream:labels"}),
    )


def label_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """[R]: the mean over k labels of -y log s(z) - (1 - y) log s(-z); logits and labels [R, k]."""
    return F.binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(-1)


def many_labels(
    branches: Mapping[str, slice],
    target: str = "labels",
    *,
    trainee: str = "rm",
    on: Authors = "policy",
    name: str = "refusal",
) -> Term:
    """Cross-entropy of k independent labels (stream [T, k] of 0 and 1) against as many outputs.

    Notes label_accuracy (all labels of a reply are right), and for each branch: precision_BRANCH, of the replies with a
    label of the branch by the classifier those that have one, and recall_BRANCH, the other way round. A label is said
    where its chance is above 1/2.
    """

    def loss(live: Live) -> Tensor:
        logits = row_heads(live)
        labels = row_numbers(live, target).to(logits)
        said, true = logits > 0, labels > 0.5
        live.note("label_accuracy", (said == true).all(-1).float())
        for branch, places in branches.items():
            flagged, has = said[:, places].any(-1), true[:, places].any(-1)
            live.note(f"precision_{branch}", has.float(), flagged)
            live.note(f"recall_{branch}", flagged.float(), has)
        return label_entropy(logits, labels)

    return head_term(loss, "score", target, name=name, trainee=trainee, on=on, unit="sequence", norm=unit_mean)


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
    `burnish refusals --generate N` writes labelled replies; the authors' annotated data are not here.
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
