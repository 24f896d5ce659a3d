"""Terms that train models to score the steps of replies."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from burnish.learn import maths
from burnish.learn.term import CLAIMED, Live, Term
from burnish.learn.terms.fit import head_term


def step_chance(target: str = "label", *, trainee: str = "prm", name: str = "step") -> Term:
    """-y log sigmoid(s) - (1 - y) log sigmoid(-s) at the claimed tokens, s the score after the token, y in [0, 1].

    y = 0 or 1 is a hard label, anything between a soft one. sigmoid(s) is the softmax over two logits whose difference
    is s: what models that predict "+" or "-" at a step's end compute over these two tokens.
    """

    def loss(live: Live) -> torch.Tensor:
        score, label = live.outputs["score"], live.streams[target].to(live.outputs["score"].dtype)
        live.note("accuracy", ((score > 0) == (label > 0.5)).float(), label != 0.5)
        live.note("error", (score.sigmoid() - label).abs())
        return F.binary_cross_entropy_with_logits(score, label, reduction="none")

    return head_term(loss, "score", target, name=name, trainee=trainee, on=CLAIMED)


def step_regression(target: str = "label", *, trainee: str = "prm", name: str = "step") -> Term:
    """(s - y)^2 at the claimed tokens, s the score after the token, y any number."""

    def loss(live: Live) -> torch.Tensor:
        score, label = live.outputs["score"], live.streams[target].to(live.outputs["score"].dtype)
        live.note("error", (score - label).abs())
        return maths.squared_error(score, label)

    return head_term(loss, "score", target, name=name, trainee=trainee, on=CLAIMED)
