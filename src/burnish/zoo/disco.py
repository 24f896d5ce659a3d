"""DisCO: Reinforcing Large Reasoning Models with Discriminative Constrained Optimization (arXiv 2505.12366)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout
from burnish.core.schedules import Schedule
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.rows import row_mean
from burnish.method import Method, Option, Sampling, chain, method, roles
from burnish.methods import Arguments, opt, register, variant
from burnish.papers import Paper
from burnish.score import verify

DISCO = Paper(
    "disco", "2505.12366", "DisCO: Reinforcing Large Reasoning Models with Discriminative Constrained Optimization"
)


def discriminate_loss(right: Tensor, wrong: Tensor, tau: float) -> Tensor:
    """DisCO's objective for one question (arXiv 2505.12366), from the scores of its right [P] and wrong [M] replies.

        L = mean over right of  tau log mean over wrong of exp((s_wrong - s_right) / tau)

    tau infinite is DisCO-b, mean s_wrong - mean s_right; a small tau looks at the best-scored wrong replies alone.
    A question with only right or only wrong replies gives 0. The means are the formula's own: one number a question.
    """
    if not len(right) or not len(wrong):
        return (right.sum() + wrong.sum()) * 0
    if math.isinf(tau):
        return wrong.mean() - right.mean()
    gap = (wrong[None, :] - right[:, None]) / tau
    return tau * (torch.logsumexp(gap, 1) - math.log(len(wrong))).mean()


def held_hinge(kl: Tensor, delta: float, beta: float) -> Tensor:
    """DisCO's penalty for a divergence above delta: sg[beta max(KL - delta, 0)] KL, with the gradient of
    (beta / 2) max(KL - delta, 0)^2 (arXiv 2505.12366). Any shape; 0 up to delta."""
    return (beta * (kl - delta).clamp(min=0)).detach() * kl


Score = Callable[[Live], Tensor]


def mean_logp(live: Live) -> Tensor:
    """[R]: DisCO's score "logL", the mean log-prob of a reply's tokens."""
    return row_mean(live, live.logp)


def mean_ratio(live: Live) -> Tensor:
    """[R]: DisCO's score "Lratio", the mean of a reply's token ratios."""
    return row_mean(live, (live.logp - live.old).exp())


def discriminate(
    score: Score, tau: float, *reads: str, coef: Schedule = 1.0, on: Authors = "policy", name: str = "rank"
) -> Term:
    """DisCO: within a group, right replies (stream "right") are scored above wrong ones; one number a group.

    `reads` names the streams that the score itself needs ("old", for `mean_ratio`).
    """

    def loss(live: Live) -> Tensor:
        scores, right = score(live), row_mean(live, live.right) > 0.5
        claimed = live.per_row(torch.ones_like(live.right)) > 0
        groups = range(int(live.group.max()) + 1)
        mine = [claimed & (live.group == g) for g in groups]
        return torch.stack([discriminate_loss(scores[m & right], scores[m & ~right], tau) for m in mine])

    streams = ("right", *reads)
    return Term(name=name, on=on, unit="group", loss=loss, live=("logp",), streams=streams, norm=unit_mean, coef=coef)


def hold(delta: float, beta: float, *, on: Authors = "policy", name: str = "hold") -> Term:
    """DisCO's constraint KL(pi_old || pi) <= delta on every group, as a squared hinge; the KL is k1's token mean."""

    def loss(live: Live) -> Tensor:
        rows = live.group[live.row]
        size = torch.zeros(int(live.group.max()) + 1, dtype=live.logp.dtype, device=rows.device)
        tokens = size.index_add(0, rows, torch.ones_like(live.logp)).clamp(min=1)
        kl = size.index_add(0, rows, live.old - live.logp) / tokens
        live.note("kl", kl)
        return held_hinge(kl, delta, beta)

    return Term(name=name, on=on, unit="group", loss=loss, live=("logp",), streams=("old",), norm=unit_mean)


# score -> how it is taken, the paper's tau for it, the streams that it reads
SCORES: dict[str, tuple[Score, float, tuple[str, ...]]] = {
    "logp": (mean_logp, 10.0, ()),
    "ratio": (mean_ratio, 1.0, ("old",)),
}  # with the paper's tau, and what it reads
_Score = Annotated[Literal["logp", "ratio"], Option("The score of a reply: its mean log-prob or its mean ratio.")]
_Constraint = Annotated[float, Option("Weight of the constraint.", at_least=0)]
_FreeKL = Annotated[float, Option("The KL that is free.", at_least=0)]


@register(
    DISCO,
    family="policy",
    summary="Right replies are scored above the wrong ones that score best, near the old policy.",
    when="Wrong answers are rare or common to an extreme, where GRPO weighs prompts by difficulty.",
)
def disco(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    score: _Score = "logp",
    tau: Annotated[
        float | None, Option("How much the best wrong replies stand out; by default by the score.", above=0)
    ] = None,
    beta: _Constraint = 1000.0,
    delta: _FreeKL = 1e-4,
    minibatches: opt.Minibatches = 4,
) -> Method:
    """Discriminative constrained optimisation.

    s(y) = mean log pi of its tokens (logp), or mean ratio pi/pi_old of its tokens (ratio)
    L = mean over prompts of [ mean over right of tau log mean over wrong of exp((s_wrong - s_right)/tau)
      + sg[beta max(KL - delta, 0)] KL ]

    KL = mean over tokens of log pi_old - log pi: the constraint KL(pi_old || pi) <= delta as a squared hinge, with
    the released code's factor (beta/2). A prompt with only right or only wrong replies adds 0 and stays in the
    mean. No clip, no reference. pi_old is computed again by the trainer, since delta is small. The constraint is
    held on each prompt's group; the released code takes the KL over each micro-batch, whatever prompts that holds,
    which micro-batching would change here. (Its ratio form of disco calls that of disco_b.) tau is by default the
    paper's, 10 for logp and 1 for ratio; so are 4 updates of a batch.
    """
    score_of, usual_tau, reads = SCORES[score]
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=verify(task),
        credit=chain(credit.right(), credit.old()),
        learn=learn.Learn(
            discriminate(score_of, usual_tau if tau is None else tau, *reads),
            hold(delta, beta),
            minibatches=minibatches,
        ),
        models=roles(),
        sampling=Sampling(0.6),
    )


@register(
    DISCO,
    family="policy",
    summary="DisCO's basic form: right replies are scored above wrong ones on average.",
    when="As `disco`, in its simplest form.",
)
@variant(disco)
def disco_b() -> Arguments:
    """DisCO-b: the difference of mean scores, what `disco` becomes as tau grows.

    L = mean over prompts of [ mean s over wrong - mean s over right + sg[beta max(KL - delta, 0)] KL ]

    The rest is as in `disco`. 4 updates of a batch are the paper's.
    """
    return {"tau": math.inf}
