"""WPO: Enhancing RLHF with Weighted Preference Optimization (arXiv 2406.11827)."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish import draw
from burnish.core.schedules import Schedule, at
from burnish.learn.maths.preference import dpo_logistic
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.compared import note_pairs
from burnish.learn.terms.preference_pairs import pair_sides
from burnish.learn.terms.rows import row_mean
from burnish.method import Method
from burnish.methods import opt, register
from burnish.methods.given_pairs import from_pairs_and_ref
from burnish.papers import Paper

WPO = Paper("wpo", "2406.11827", "WPO: Enhancing RLHF with Weighted Preference Optimization")


def sampled_weight(logp: Tensor, collision: Tensor) -> Tensor:
    """WPO's token weight in logs (Zhou et al., arXiv 2406.11827): log pi(y_t) - log sum_v pi(v)^2. Shape [N].

    sum_v pi(v)^2 is the probability that a sampled token has on average, so an on-policy reply weighs about 1.
    """
    return logp - collision.log()


def weighted_pairs(beta: Schedule, *, on: Authors = "policy", most: float = 1.0) -> Term:
    """WPO: DPO times the held weights of both replies, their product at most `most`."""

    def loss(live: Live) -> Tensor:
        w, r, now = *pair_sides(live), at(beta, live.clock)
        note_pairs(live, w, r, now)
        with torch.no_grad():
            collision = torch.softmax(live.logits, -1).square().sum(-1)
            log_weight = row_mean(live, sampled_weight(live.logp, collision))
            weight = log_weight[live.pairs].sum(-1).exp().clamp(max=most)
        live.note("weight", weight)
        return weight * dpo_logistic(w.logratio, r.logratio, now)

    needs = ("logp", "entropy", "logits")
    return Term(name="reply", on=on, unit="pair", loss=loss, live=needs, streams=("ref",), norm=unit_mean)


@register(
    WPO,
    family="preference",
    summary="DPO in which pairs count the more, the likelier the policy would write them.",
    when="The pairs were written by other models.",
)
def wpo(task: draw.Source, *, beta: opt.Beta = 0.01) -> Method:
    """WPO.

    w(y) = exp( mean over t of log[ pi(y_t) / sum_v pi(v)^2 ] ), held
    L = min(1, w(y_w) w(y_l)) x -log s( beta [lr_w - lr_l] ),  mean over pairs;  lr = log pi(y|x) - log ref(y|x)

    sum_v pi(v)^2 is the probability that a sampled token has on average, so a reply of the policy's own weighs about 1.
    The bound of 1 is that of the authors' code. It needs the whole distribution at every token.
    """
    return from_pairs_and_ref(task, weighted_pairs(beta, on="demo"))
