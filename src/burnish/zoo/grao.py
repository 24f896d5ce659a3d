"""Learning to Align, Aligning to Learn: A Unified Approach for Self-Optimized Alignment (arXiv 2508.07750)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

GRAO = Paper(
    "grao", "2508.07750", "Learning to Align, Aligning to Learn: A Unified Approach for Self-Optimized Alignment"
)


@register(
    GRAO,
    family="hybrid",
    summary="Follow good samples, and the demonstration as long as it is better than they are.",
    when="One demonstration a prompt, of unclear quality: it should teach only while it beats the model's own replies.",
)
def grao(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    beta: opt.ImitationCoef = 0.5,
    lam: Annotated[float, Option("Weight of the contrast.", at_least=0)] = 0.6,
    demo_counts: Annotated[bool, Option("Whether the demonstration counts in the mean and the deviation.")] = True,
    temperature: opt.Temperature = 0.7,
) -> Method:
    """GRAO: exploration, imitation and the contrast between them, all weighed by relative advantages.

    A = (R - mean) / std over the n samples and the demonstration y (std with 1/n);  l = mean log pi of a reply's tokens
    J = 1/n sum_i [ A_i l(o_i) + beta A_y l(y) + lam A_i (l(o_i) - l(y)) ],   L = -J, averaged over prompts

    There is no ratio, clip or KL. As printed, mean and std run over the samples alone (demo_counts = False), which
    leaves A_y without a value where all samples score the same; the text speaks of one group, which is the default
    here. A group in which nothing differs has weight 0. All log-probs are those at the sampling temperature.
    """
    return method(
        draw=draw.demos(task),
        rollout=rollout.join(rollout.sample(n, temperature=temperature), rollout.given("demo")),
        score=score.verify(task),
        credit=credit.aligned(beta=beta, lam=lam, demo_counts=demo_counts),
        learn=learn.Learn(
            learn.pg_reinforce(norm=learn.seq_mean),
            learn.pg_demonstrated(norm=learn.seq_mean),
            logp_temperature=temperature,
        ),
        models=roles(),
    )
