"""Latent Collective Preference Optimization: A General Framework for Robust LLM Alignment (arXiv 2509.24159)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish import credit, draw
from burnish.core.parts import Part, chain, supplies
from burnish.core.schedules import Schedule
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.preference import fill, reply_sum
from burnish.learn.maths.preference import Replies, dpo_logistic, logistic
from burnish.learn.maths.preference_free import simpo_margin
from burnish.learn.maths.preference_pairs import ipo_squared
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import PairLoss, pair_term
from burnish.method import Method, Option
from burnish.methods import papers, register
from burnish.methods.given_pairs import from_pairs, from_pairs_and_ref

METRICS = (
    ("label_reliability", "Credit", "estimated share of right labels", "up"),
    ("label_reliability/*", "Credit", "estimated share of right labels of one annotator", "up"),
)


@dataclass(frozen=True)
class Wrapped:
    """A loss on a pair, made robust: exp(-loss) is how likely it finds the label. beta: its default scale."""

    loss: PairLoss
    beta: float
    anchor: str | None = "ref"

    def __repr__(self) -> str:  # pages list defaults: without the address of a function
        return self.loss.__name__.strip("_")


def _dpo(w: Replies, r: Replies, beta: float) -> Tensor:
    return dpo_logistic(w.logratio, r.logratio, beta)


def _ipo(w: Replies, r: Replies, tau: float) -> Tensor:
    return ipo_squared(w.logratio, r.logratio, tau)


def _simpo(w: Replies, r: Replies, beta: float) -> Tensor:
    return logistic(simpo_margin(w.logp / w.tokens, r.logp / r.tokens, beta, SIMPO_MARGIN * beta))


def _cpo(w: Replies, r: Replies, beta: float) -> Tensor:
    return logistic(beta * (w.logp - r.logp)) - w.logp / w.tokens


SIMPO_MARGIN = 0.5  # gamma / beta
LOSSES: Mapping[str, Wrapped] = {
    "dpo": Wrapped(_dpo, 0.1),
    "ipo": Wrapped(_ipo, 0.1),
    "simpo": Wrapped(_simpo, 2.0, None),
    "cpo": Wrapped(_cpo, 0.1, None),
}


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
    """RE-PO's estimate of how often an annotator's labels are right: eta <- (1 - momentum) eta + momentum mean c."""

    def __init__(self, start: float, momentum: float, name: str = "reliability") -> None:
        self.name, self.start, self.momentum = name, start, momentum
        self.values: dict[str, float] = {}

    def of(self, annotator: str) -> float:
        return self.values.get(annotator, self.start)

    def saw(self, annotator: str, confidence: float) -> None:
        before = self.of(annotator)
        self.values[annotator] = before + self.momentum * (confidence - before)

    def state_dict(self) -> State:
        return {"values": dict(self.values)}

    def load_state_dict(self, state: State) -> None:
        stored = state.get("values", {"": state.get("value")})  # one number, before annotators had their own
        self.values = {str(name): float(value) for name, value in stored.items()}


def _seen(trace: Trace, author: str, anchor: str | None) -> Replies:
    """A reply with the policy's log-probs before the update, as a loss sees it."""
    logp = torch.tensor([reply_sum(trace, "now", author)], dtype=torch.float64)
    behind = torch.tensor([reply_sum(trace, anchor, author)], dtype=torch.float64) if anchor else torch.zeros(1)
    return Replies(logp, logp - behind, trace.by(author).sum().reshape(1).double())


@supplies("stream:confidence")
def label_confidence(
    reliability: Reliability, wrapped: Wrapped, beta: float, *, annotator: str = "", author: str = "demo"
) -> Part:
    """RE-PO's E-step: the chance that each pair's label is right, as stream "confidence"; then eta moves to their mean.

    p = s( L(l, w) - L(w, l) ) with the policy's log-probs in stream "now". annotator: the column that says who labelled
    a pair; each has an eta of its own. Without one all pairs are one annotator's.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        found: dict[str, list[float]] = {}
        for group in sorted(groups, key=lambda group: group.task.key):
            who = str(group.task.given[annotator]) if annotator else ""
            for a, b in group.pairs or ():
                w, r = (_seen(group.traces[i], author, wrapped.anchor) for i in (a, b))
                odds = wrapped.loss(r, w, beta) - wrapped.loss(w, r, beta)
                confidence = float(trust(torch.sigmoid(odds), reliability.of(who)))
                fill(group.traces[a], "confidence", confidence)
                fill(group.traces[b], "confidence", confidence)
                found.setdefault(who, []).append(confidence)
        for who, own in sorted(found.items()):
            reliability.saw(who, sum(own) / len(own))
            step.notes.add("label_confidence", sum(own), len(own))
            step.notes.add("label_reliability", reliability.of(who) * len(own), len(own))
            if annotator:
                step.notes.add(f"label_reliability/{who}", reliability.of(who))
        return groups

    read = {"pairs", "stream:now", f"tokens:{author}"} | ({f"stream:{wrapped.anchor}"} if wrapped.anchor else set())
    return Part(
        name="label_confidence",
        call=call,
        reads=frozenset(read | ({f"given:{annotator}"} if annotator else set())),
        writes=frozenset({"stream:confidence"}),
        state=(reliability,),
    )


def trusted(beta: Schedule, wrapped: Wrapped = LOSSES["dpo"], *, on: Authors = "policy") -> Term:
    """RE-PO's M-step on a loss, the confidence in each label read from stream "confidence"."""

    def loss(w: Replies, r: Replies, beta: float) -> Tensor:
        return trusted_loss(wrapped.loss(w, r, beta), wrapped.loss(r, w, beta), w["confidence"])

    return pair_term(loss, beta=beta, anchor=wrapped.anchor, marks=("confidence",), on=on)


@register(
    papers.LCPO,
    family="preference",
    summary="Learn how reliable the labels are while learning from them (expectation maximisation).",
    when="Some labels are wrong, and nobody knows how many, or whose.",
)
def lcpo(
    task: draw.Source,
    *,
    loss: Annotated[str, Option("The loss that is made robust.", choices=tuple(LOSSES))] = "dpo",
    beta: Annotated[float | None, Option("Its beta (ipo: tau); by default 0.1, and 2 of simpo.", above=0)] = None,
    annotator: Annotated[str, Option("The column that says who labelled a pair; each has a reliability.")] = "",
    reliability: Annotated[float, Option("Share of right labels that is assumed at first.", above=0, below=1)] = 0.9,
    momentum: Annotated[float, Option("How fast that share follows the batches.", at_least=0, at_most=1)] = 0.1,
) -> Method:
    """LCPO, since its third version RE-PO, around DPO, IPO, SimPO or CPO.

    p = s( L(l, w) - L(w, l) ), L the loss of a pair;  E-step: c = p eta / (p eta + (1 - p)(1 - eta)), held
    M-step: -c log p - (1 - c) log(1 - p),  mean over pairs;  eta_k <- (1 - momentum) eta_k + momentum mean c

    p and c come from the policy before the update; of DPO p = s( beta [lr_w - lr_l] ). eta_k is the reliability of
    annotator k, c that of k's pairs; without --annotator all pairs are one's. reliability = 1 would be DPO: every label
    is trusted. SimPO's gamma is beta / 2; CPO's likelihood, of the mean token, is part of L.
    """
    if annotator:
        draw.require_column(task, (annotator,), f"annotator={annotator}", "who labelled a pair", "")
    wrapped, judges = LOSSES[loss], Reliability(reliability, momentum)
    scale = wrapped.beta if beta is None else beta
    after = chain(credit.streams("policy", logp="now"), label_confidence(judges, wrapped, scale, annotator=annotator))
    learned = trusted(scale, wrapped, on="demo")
    return from_pairs_and_ref(task, learned, then=after) if wrapped.anchor else from_pairs(task, learned, credit=after)
