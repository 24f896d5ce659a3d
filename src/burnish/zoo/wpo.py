"""WPO: Enhancing RLHF with Weighted Preference Optimization (arXiv 2406.11827)."""

from __future__ import annotations

from burnish import credit, draw, learn, rollout, score, select
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

WPO = Paper("wpo", "2406.11827", "WPO: Enhancing RLHF with Weighted Preference Optimization")


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
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.weighted_pairs(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
