"""DisCO: Reinforcing Large Reasoning Models with Discriminative Constrained Optimization (arXiv 2505.12366)."""

from __future__ import annotations

import math
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, Sampling, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

DISCO = Paper(
    "disco", "2505.12366", "DisCO: Reinforcing Large Reasoning Models with Discriminative Constrained Optimization"
)

# score -> how it is taken, the paper's tau for it, the streams that it reads
SCORES: dict[str, tuple[learn.Score, float, tuple[str, ...]]] = {
    "logp": (learn.mean_logp, 10.0, ()),
    "ratio": (learn.mean_ratio, 1.0, ("old",)),
}  # with the paper's tau, and what it reads
_Score = Annotated[str, Option("The score of a reply: its mean log-prob or its mean ratio.", choices=("logp", "ratio"))]
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
    return _disco(task, n, score, tau, beta, delta, minibatches)


@register(
    DISCO,
    family="policy",
    summary="DisCO's basic form: right replies are scored above wrong ones on average.",
    when="As `disco`, in its simplest form.",
)
def disco_b(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    score: _Score = "logp",
    beta: _Constraint = 1000.0,
    delta: _FreeKL = 1e-4,
    minibatches: opt.Minibatches = 4,
) -> Method:
    """DisCO-b: the difference of mean scores, what `disco` becomes as tau grows.

    L = mean over prompts of [ mean s over wrong - mean s over right + sg[beta max(KL - delta, 0)] KL ]

    The rest is as in `disco`. 4 updates of a batch are the paper's.
    """
    return _disco(task, n, score, math.inf, beta, delta, minibatches)


def _disco(
    task: draw.Source,
    n: int,
    scored_by: str,
    tau: float | None,
    beta: float,
    delta: float,
    minibatches: int,
) -> Method:
    found, usual_tau, reads = SCORES[scored_by]
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.right(), credit.old()),
        learn=learn.Learn(
            learn.discriminate(found, usual_tau if tau is None else tau, *reads),
            learn.hold(delta, beta),
            minibatches=minibatches,
        ),
        models=roles(),
        sampling=Sampling(0.6),
    )
