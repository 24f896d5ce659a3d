"""SuperHF: Supervised Iterative Learning from Human Feedback (arXiv 2310.16763)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.method import Method, Option, Sampling, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

SUPERHF = Paper("superhf", "2310.16763", "SuperHF: Supervised Iterative Learning from Human Feedback")


@register(
    SUPERHF,
    family="imitation",
    summary="Imitate the best of many samples, held by a full KL to the starting model.",
    when="As `raft`, when imitating one's own best replies drifts too far from the start.",
)
def superhf(
    task: draw.Source,
    *,
    n: opt.Replies = 16,
    beta: Annotated[float, Option("Weight of the KL; 0 loads no reference.", at_least=0)] = 0.7,
    reward_model: opt.RewardModel = None,
) -> Method:
    """SuperHF: supervised learning on the best of a superbatch, with the prior kept by a KL.

    y* = argmax over n samples of r;   L = -(1 / N) sum over the N tokens of y* of log pi
      + beta mean over replies of mean over tokens of KL(p_0 || pi), over the whole vocabulary, p_0 the starting model

    The KL is the forward one, as in the released code; it is never negative, so the code's max(0, KL) changes
    nothing. The code sums it over the 2 replies of an update with beta 0.35, which is the mean with beta 0.7.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        select=select.keep_best(1),
        learn=learn.Learn(
            learn.imitate(),
            learn.distil(0.0, teacher="ref", norm=learn.seq_mean, coef=beta, name="prior"),
            logp_temperature=1.0,
        ),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        sampling=Sampling(top_p=0.95),
    )
