"""Given pairs and a frozen reference, one link function each: how the margin of a pair becomes a loss."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.learn.maths import preference_pairs as maths
from burnish.learn.terms import preference_pairs as pairs
from burnish.learn.terms.preference_unpaired import likelihood
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, papers, register

SLOPES = {
    "reverse_kl": lambda alpha: maths.reverse_kl,
    "forward_kl": lambda alpha: maths.forward_kl,
    "jensen_shannon": lambda alpha: maths.jensen_shannon,
    "alpha": maths.alpha_divergence,
}


@register(
    papers.IPO,
    family="preference",
    summary="DPO with a squared loss: the margin has a finite target.",
    when="Preferences are nearly certain, and DPO drives the policy far from its reference.",
)
def ipo(
    task: draw.Source,
    *,
    tau: Annotated[float, Option("Strength of the regulariser; the margin's target is 1 / (2 tau).", above=0)] = 0.1,
) -> Method:
    """IPO.

    d = [log pi(y_w|x) - log ref(y_w|x)] - [log pi(y_l|x) - log ref(y_l|x)]
    L = (d - 1/(2 tau))^2,  mean over pairs

    Log-probs are summed over the reply, as in the paper; some implementations take means, for which tau means another
    strength. tau = 0.1 is the usual choice.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.ipo(tau, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.EXO,
    family="preference",
    summary="Reverse KL between the policy's odds of a pair and a softened label: it seeks the mode.",
    when="As `dpo`, where the policy should drop bad replies rather than cover all good ones.",
)
def exo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    eps: Annotated[float, Option("Probability that the label leaves to the rejected reply.", above=0, below=1)] = 1e-3,
) -> Method:
    """EXO on pairs.

    p = softmax(beta lr_w, beta lr_l),  q = (1 - eps, eps),  lr = log pi(y|x) - log ref(y|x)
    L = KL(p || q) = sum p log(p / q),  mean over pairs

    The policy's side comes first. The forward KL(q || p) is DPO with label smoothing eps, up to a constant.
    `exo_rewards` is the same with rewards of several replies.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.exo(beta, eps, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.NCA,
    family="preference",
    summary="Classify each reply of a pair against noise, so that the chosen reply's likelihood does not fall.",
    when="DPO lowers the likelihood of chosen replies too.",
)
def nca(task: draw.Source, *, beta: opt.Beta = 0.01) -> Method:
    """NCA on pairs.

    r = beta [log pi(y|x) - log ref(y|x)]
    L = -log s(r_w) - [log s(-r_w) + log s(-r_l)] / 2,  mean over pairs

    beta = 0.01 is the authors'. `nca_rewards` is the same with explicit rewards of several replies.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.nca(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.DISCOPOP,
    family="preference",
    summary="A loss found by search: logistic on pairs in the wrong order, exponential on the others.",
    when="As `dpo`, to try a loss that is not convex.",
)
def discopop(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.05,
    tau: Annotated[float, Option("Temperature of the gate between the two losses.", above=0)] = 0.05,
) -> Method:
    """DiscoPOP (the log-ratio modulated loss).

    x = beta (lr_w - lr_l),  lr = log pi(y|x) - log ref(y|x)
    L = (1 - s(x/tau)) (-log s(x)) + s(x/tau) e^-x,  mean over pairs

    The gradient passes through the gate. e^x goes on as its tangent above x = 10. beta = tau = 0.05 are the paper's.
    With this tau the slope at x = 0 is +0.78: where pi is the reference the loss lowers the margin, until noise or the
    batch carries a pair past the bump (x about 0.1). tau = 1 has no bump.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.discovered(beta, tau, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.SIGMOID_APO,
    family="preference",
    summary="Raise the chosen reply and lower the rejected one, each by itself.",
    when="Chosen replies are better than what the policy would write.",
)
def apo_zero(task: draw.Source, *, beta: opt.Beta = 0.1) -> Method:
    """APO-zero.

    r = beta [log pi(y|x) - log ref(y|x)]
    L = 1 - s(r_w) + s(r_l),  mean over pairs

    The paper's loss is without the constant 1. Use `apo_down` where the policy is better than its data.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.apo_zero(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.SIGMOID_APO,
    family="preference",
    summary="Lower both replies of a pair and keep a gap between them.",
    when="The policy is better than both replies of its data.",
)
def apo_down(task: draw.Source, *, beta: opt.Beta = 0.1) -> Method:
    """APO-down.

    r = beta [log pi(y|x) - log ref(y|x)]
    L = s(r_w) + 1 - s(r_w - r_l),  mean over pairs

    The paper's loss is without the constant 1. At the start, where pi is the reference, chosen replies have no
    gradient.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.apo_down(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.H_DPO,
    family="preference",
    summary="DPO whose coefficient on the policy's own log-probs controls its entropy.",
    when="The policy should become sharper (alpha below 1) or more diverse (above 1) than DPO makes it.",
)
def h_dpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    alpha: Annotated[float, Option("Weight of the policy's entropy; 1 is DPO, below 1 is sharper.", above=0)] = 0.95,
) -> Method:
    """H-DPO.

    L = -log s( beta [alpha log pi(y_w|x) - log ref(y_w|x)] - beta [alpha log pi(y_l|x) - log ref(y_l|x)] )

    Mean over pairs. Its optimum is ref^(1/alpha) exp(r / (alpha beta)). alpha = 1 is DPO. The paper's text was not
    available: the formula is that of two agreeing summaries, and alpha and beta are a choice of ours.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.entropy_controlled(beta, alpha, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.F_DPO,
    family="preference",
    summary="DPO under another divergence than the reverse KL.",
    when="DPO costs too much diversity: divergences towards the forward KL keep more of it.",
)
def f_dpo(
    task: draw.Source,
    *,
    divergence: Annotated[str, Option("The divergence from the reference.", choices=tuple(SLOPES))] = "alpha",
    alpha: Annotated[float, Option("Order of the alpha-divergence, with divergence alpha.", above=0, below=1)] = 0.5,
    beta: opt.Beta = 0.1,
) -> Method:
    """f-DPO.

    u = pi(y|x) / ref(y|x);  L = -log s( beta f'(u_w) - beta f'(u_l) ),  mean over pairs
    f'(u): reverse_kl log u + 1 (DPO);  forward_kl -1/u;  jensen_shannon log(2u/(1+u));  alpha (1 - u^-alpha)/alpha

    e^x goes on as its tangent above x = 10, so that long replies stay finite; the authors' code has no such bound.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.divergence(beta, SLOPES[divergence](alpha), on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    papers.RPO,
    family="preference",
    summary="DPO and an SFT loss on the chosen replies, which stops their likelihood from falling.",
    when="DPO over-optimises: the likelihood of chosen replies collapses.",
)
def rpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.01,
    eta: Annotated[float, Option("Weight of the SFT loss, in units of beta.", at_least=0)] = 0.005,
) -> Method:
    """RPO: regularised preference optimisation.

    L = -log s( beta [lr_w - lr_l] ) - eta beta log pi(y_w|x),  mean over pairs;  lr = log pi(y|x) - log ref(y|x)

    log pi(y_w|x) is summed over the reply, as in the authors' code, whose beta and eta are the defaults. eta = 0 is
    DPO.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=chain(credit.cached_ref(task), credit.claim("sft", "demo", tag="chosen")),
        learn=learn.Learn(learn.dpo(beta, on="demo"), likelihood(coef=-eta * beta, on=learn.CLAIMED, name="sft")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
