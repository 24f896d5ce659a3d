"""The Wisdom of Hindsight Makes Language Models Better Instruction Followers (arXiv 2302.05206)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

HIR = Paper("hir", "2302.05206", "The Wisdom of Hindsight Makes Language Models Better Instruction Followers")


@register(
    HIR,
    family="imitation",
    summary="Relabel each sample with the instruction that it met, and imitate it under that.",
    when="Wrong replies should teach too, through another instruction, without a reward in the loss.",
    trial={"n": 2, "updates": 1},
)
def hir(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    smoothing: Annotated[float, Option("Share of the target spread over other tokens.", at_least=0, below=1)] = 0.2,
    contrastive: Annotated[float, Option("Weight of the contrast.", at_least=0)] = 1.0,
    entropy: opt.EntropyCoef = 0.001,
    updates: opt.Updates = 10,
    right: Annotated[str, Option("Words before the prompt in sampling, and of replies that are right.")] = "",
    wrong: Annotated[
        str, Option("Words before the prompt of replies that are wrong.")
    ] = "Solve the question with wrong answer.",
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Hindsight instruction relabelling.

    A reply y sampled under `right` is repeated under the instruction i that it met (right or wrong); i' is the other.
    L = mean over replies of mean over tokens of [ -(1-s) log pi(y_t|x,i) - s mean over v of log pi(v) - entropy H(pi) ]
      + contrastive mean over replies of [ -(1-s) log P - s log(1 - P) ],   s = smoothing
    P = p(y|x,i) / (p(y|x,i) + p(y|x,i'))
    p(y|.) = the geometric mean of the token probabilities;  only a random contiguous piece of y is trained

    The constants are the released code's. Its label smoothing leaves a fifth of the probability to other tokens:
    greedy answers do not mind, but free sampling draws them, so on `tiny` held-out accuracy falls; with smoothing 0
    it rises. Departures: a step is a round; the instruction to be right is the bare prompt unless words are given,
    so that the product is asked like any other model.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.under(right, rollout.sample(n, temperature=temperature)),
        score=score.verify(task),
        select=select.relabel(right, wrong),
        credit=chain(credit.claim("sft", "hindsight", tag="own"), credit.claim("bonus", "hindsight", tag="own")),
        learn=learn.Learn(
            learn.imitate_smoothed(smoothing, on=learn.CLAIMED),
            learn.entropy_bonus(coef=entropy, norm=learn.seq_mean, on=learn.CLAIMED, name="bonus"),
            learn.contrast(smoothing, coef=contrastive, on="hindsight"),
            updates=updates,
        ),
        models=roles(),
    )
