"""The term of a classifier with several labels for each reply."""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor

from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.reward import row_heads, row_numbers


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

    return Term(
        name=name,
        on=on,
        unit="sequence",
        loss=loss,
        live=("score",),
        streams=(target,),
        norm=unit_mean,
        trainee=trainee,
    )
