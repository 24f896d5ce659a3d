"""What methods on given pairs share: the chosen and the rejected reply of the data, in this order."""

from __future__ import annotations

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Part, Role, chain, everything, frozen, method, roles


def from_pairs(
    task: draw.Source, *terms: learn.Term, credit: Part = everything, lr_share: float = 0.1, **models: Role
) -> Method:
    """The chosen reply of each row against the rejected one; `models` stand beside the policy."""
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit,
        learn=learn.Learn(*terms),
        models=roles(**models),
        lr_share=lr_share,
    )


def from_pairs_and_ref(task: draw.Source, *terms: learn.Term, then: Part = everything) -> Method:
    """The same with the policy's frozen start as the reference, whose log-probs (stream "ref") are kept from epoch to
    epoch; then other credit."""
    return from_pairs(task, *terms, credit=chain(credit.cached_ref(task), then), ref=frozen("policy"))
