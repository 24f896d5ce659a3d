"""COPO: Consistency-Aware Policy Optimization (arXiv 2508.04138)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

COPO = Paper("copo", "2508.04138", "COPO: Consistency-Aware Policy Optimization")


@register(
    COPO,
    family="policy",
    summary="Groups that agree learn from the batch, groups that differ from themselves.",
    when="Many prompts are answered alike by all replies, right or wrong, and GRPO would learn nothing from them.",
)
def copo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 6,
    eps: opt.ClipRange = 0.2,
    dual: opt.DualClip = 3.0,
    sharpness: Annotated[float, Option("How sharply w changes with entropy.", at_least=0)] = 5.0,
    centre: Annotated[float, Option("The entropy, in bits, at which w is 1/2.")] = 1.0,
    gate: Annotated[float, Option("Replies that score this or less follow the global signal alone.")] = 0.0,
    temperature: opt.Temperature = 1.0,
    updates: opt.Updates = 1,
) -> Method:
    """COPO: a local and a global signal, blended by how much the answers to a prompt differ.

    A_local = (r_i - mean r) / (std r + 1e-6) in the group
    A_global = (R(q) - mean R) / (std R + 1e-6) over the prompts,   R(q) = mean r
    w = sigmoid(sharpness (H - centre)), 0 where r_i <= gate;   H(q) = entropy in bits of the final answers
    L = mean over replies of mean over tokens of [ w clipped(rho, A_local) + (1 - w) clipped(rho, A_global) ]
    clipped: PPO's, with the dual clip where A < 0.

    The constants and the gate are those of the authors' script ("soft with zero"); a survey reports 20 and 1.5 for
    sharpness and centre. No KL.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=chain(score.verify(task), score.answer_entropy()),
        credit=chain(credit.local_and_global(sharpness=sharpness, centre=centre, gate=gate), credit.behaviour()),
        learn=learn.Learn(
            learn.pg_clip(eps, dual=dual, norm=learn.seq_mean),
            learn.pg_clip(eps, dual=dual, norm=learn.seq_mean, adv="adv_global", name="global"),
            updates=updates,
        ),
        models=roles(),
    )
