"""Distributional Preference Alignment of LLMs via Optimal Transport (arXiv 2406.05882)."""

from __future__ import annotations

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.learn.terms import preference_pairs as pairs
from burnish.learn.terms import preference_unpaired as unpaired
from burnish.method import Method, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.preference_unpaired import labelled_replies
from burnish.papers import Paper

AOT = Paper("aot", "2406.05882", "Distributional Preference Alignment of LLMs via Optimal Transport")


@register(
    AOT,
    family="preference",
    summary="Make the policy's margins larger than the reference's as a distribution, not pair by pair.",
    when="As `dpo`, where single labels are noisy and the whole distribution of margins matters.",
)
def aot(task: draw.Source, *, beta: opt.Beta = 0.01) -> Method:
    """AOT on pairs: alignment by optimal transport in one dimension.

    u_i = log pi(y_w) - log pi(y_l),  v_i = log ref(y_w) - log ref(y_l), both sorted over the batch
    L = mean over i of -log s( beta (u_(i) - v_(i)) )

    Ranks come from the policy before the update. A batch of one pair is DPO. `aot_unpaired` compares single replies.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=chain(credit.cached_ref(task), credit.streams("policy", logp="now"), credit.matched_margins()),
        learn=learn.Learn(pairs.transported(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    AOT,
    family="preference",
    summary="Make the rewards of good replies larger than those of bad ones as a distribution.",
    when="As `kto`, by optimal transport between the two classes.",
)
def aot_unpaired(task: draw.Source, *, beta: opt.Beta = 0.01) -> Method:
    """AOT on unpaired replies.

    lr = log pi(y|x) - log ref(y|x), of good and of bad replies, each sorted over the batch
    L = mean over ranks i of -log s( beta (lr_good(i) - lr_bad(i)) )

    Ranks and partners come from the policy before the update; the gradient is that of the whole loss. One good and one
    bad reply are DPO.
    """
    return method(
        **labelled_replies(task),
        credit=chain(
            credit.cached_ref(task), credit.streams("policy", logp="now"), credit.label(), credit.matched_replies()
        ),
        learn=learn.Learn(unpaired.transported_replies(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
