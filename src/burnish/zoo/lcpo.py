"""Latent Collective Preference Optimization: A General Framework for Robust LLM Alignment (arXiv 2509.24159)."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish import credit, draw
from burnish.core.parts import Part, State, chain, supplies
from burnish.core.schedules import Schedule
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.preference import fill, pairs_in_order, reply_sum
from burnish.learn.maths.preference import Replies
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.learn.terms.preference_pairs import dpo_both_ways
from burnish.method import Method, Option
from burnish.methods import opt, papers, register
from burnish.methods.given_pairs import from_pairs_and_ref

METRICS = (("label_reliability", "Credit", "estimated share of right labels", "up"),)


def trust(chance: Tensor, reliability: float) -> Tensor:
    """RE-PO's E-step (LCPO, arXiv 2509.24159): c = p eta / (p eta + (1 - p)(1 - eta)).

    c is the posterior that a label is right.

    eta is the annotator's reliability. eta = 1 is c = 1 for any p > 0; eta = 1/2 is c = p.
    """
    right = chance * reliability
    return right / (right + (1 - chance) * (1 - reliability))


def trusted_loss(loss_kept: Tensor, loss_flipped: Tensor, confidence: Tensor) -> Tensor:
    """RE-PO's M-step (arXiv 2509.24159): -c log p - (1 - c) log(1 - p), p the chance that the loss gives to the label.

    c is held. For DPO it is c l(w, l) + (1 - c) l(l, w); for other losses it is not. c = 1 is -log p.
    """
    log_odds = loss_flipped - loss_kept
    return -confidence * F.logsigmoid(log_odds) - (1 - confidence) * F.logsigmoid(-log_odds)


class Reliability:
    """RE-PO's estimate of how often labels are right: eta <- (1 - momentum) eta + momentum mean c."""

    def __init__(self, start: float, momentum: float, name: str = "reliability") -> None:
        self.name, self.value, self.momentum = name, start, momentum

    def saw(self, confidence: float) -> None:
        self.value += self.momentum * (confidence - self.value)

    def state_dict(self) -> State:
        return {"value": self.value}

    def load_state_dict(self, state: State) -> None:
        self.value = float(state["value"])


@supplies("stream:confidence")
def label_confidence(reliability: Reliability, beta: float, *, author: str = "demo") -> Part:
    """RE-PO's E-step: the chance that each pair's label is right, as stream "confidence"; then eta moves to their mean.

    p = s(beta (lr_w - lr_l)) with the policy's log-probs in stream "now".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        found = []
        for w, r in pairs_in_order(groups):
            lr_w, lr_l = (reply_sum(t, "now", author) - reply_sum(t, "ref", author) for t in (w, r))
            confidence = float(trust(torch.sigmoid(torch.tensor(beta * (lr_w - lr_l))), reliability.value))
            fill(w, "confidence", confidence)
            fill(r, "confidence", confidence)
            found.append(confidence)
        if found:
            reliability.saw(sum(found) / len(found))
            step.notes.add("label_confidence", sum(found), len(found))
            step.notes.add("label_reliability", reliability.value)
        return groups

    return Part(
        name="label_confidence",
        call=call,
        reads=frozenset({"pairs", "stream:now", "stream:ref", f"tokens:{author}"}),
        writes=frozenset({"stream:confidence"}),
        state=(reliability,),
    )


def trusted(beta: Schedule, *, on: Authors = "policy") -> Term:
    """RE-PO's M-step on DPO, the confidence in each label read from stream "confidence"."""

    def loss(w: Replies, r: Replies, beta: float) -> Tensor:
        return trusted_loss(*dpo_both_ways(w, r, beta), w["confidence"])

    return pair_term(loss, beta=beta, marks=("confidence",), on=on)


@register(
    papers.LCPO,
    family="preference",
    summary="Learn how reliable the labels are while learning from them (expectation maximisation).",
    when="Some labels are wrong, and nobody knows how many.",
)
def lcpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    reliability: Annotated[float, Option("Share of right labels that is assumed at first.", above=0, below=1)] = 0.9,
    momentum: Annotated[float, Option("How fast that share follows the batches.", at_least=0, at_most=1)] = 0.1,
) -> Method:
    """LCPO, since its third version RE-PO, around DPO, with one annotator.

    p = s( beta [lr_w - lr_l] );  E-step: c = p eta / (p eta + (1 - p)(1 - eta)), held
    M-step: L = -c log p - (1 - c) log(1 - p),  mean over pairs;  eta <- (1 - momentum) eta + momentum mean c

    p and c come from the policy before the update. reliability = 1 would be DPO: every label is trusted.
    """
    annotator = Reliability(reliability, momentum)
    return from_pairs_and_ref(
        task,
        trusted(beta, on="demo"),
        then=chain(credit.streams("policy", logp="now"), label_confidence(annotator, beta)),
    )
